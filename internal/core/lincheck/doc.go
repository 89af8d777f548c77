// Package lincheck checks the answers of a timestamp oracle: did clients see unique
// timestamps in real-time order (invariant I4)?
//
// It has two checkers of the same property. [Check] takes a whole recorded history and is
// exact. [Online] watches a load of any length in constant memory and counts the operations,
// if any, for which its memory did not suffice.
//
// The package knows no protocol, no clock and no cluster: operations and times are arguments.
// The simulator calls Check, the load generator Online. All but online.go is deterministic;
// online.go is for concurrent use and needs sync.
//
// Linearizability is defined in Herlihy and Wing, "Linearizability: A
// Correctness Condition for Concurrent Objects" (ACM TOPLAS 12(3), 1990). For an
// arbitrary object the check is NP-complete; Lowe, "Testing for
// linearizability" (2017), and Athalye's Porcupine search with memory and
// backtracking. The timestamp oracle needs no search, because each answer names
// its own place in the order: see check.go. The tests hold Check against
// Porcupine.
package lincheck
