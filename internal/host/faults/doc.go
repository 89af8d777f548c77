// Package faults breaks a process from inside, for tests with real processes: its clock shows what a file says, and
// it stops at a step that a file names. Only builds with the tag faults use it; releases do not contain it.
package faults
