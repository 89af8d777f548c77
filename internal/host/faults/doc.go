// Package faults has a clock that shows what a file says, for tests with real processes. Only builds with the tag
// faults use it; releases do not contain it.
package faults
