// Package stops stops a process at a step that a file names, for tests with real processes. Only builds with the tag
// faults use it; releases do not contain it.
package stops
