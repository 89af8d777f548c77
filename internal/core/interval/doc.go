// Package interval is the arithmetic of the cluster clock: what a process may conclude from its own
// steady clock and from what a node has told it, and which timestamps it may make of that. The
// leader, the other nodes and clients use the same code, and so does the simulator.
//
// The leader of each term runs one clock, the cluster clock of that term. It tells others a
// [Reading]: what the clock shows, and a limit up to which it may be used. A process keeps an
// [Estimate] of the clock from readings, and reads bounds of it at any time without a request. The
// bounds hold as long as the later one is not above the limit, because no clock of a later term
// starts before that limit has passed (internal/core/replica/interval.go). docs/intervals.md has the
// rules and the proof.
//
// Times on the cluster clock are unix nanoseconds. Times on a steady clock are nanoseconds from an
// origin of its own, see [Instant].
//
// The package reads no clock. An Estimate and a Generator are not safe for concurrent use, the
// functions are.
package interval
