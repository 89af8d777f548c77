// Package rig has what tests of nodes and commands share: waits for events, clients that say each byte themselves,
// lists of users, and certificates. Only tests import it.
package rig
