// Package rig has what tests of nodes and commands share: clients that say each byte themselves,
// lists of users, and certificates. Only tests import it.
package rig
