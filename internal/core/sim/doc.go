// Package sim runs a cluster of real replicas in a world made of faults, on one
// thread, decided by one seed: the same seed gives the same run, bit for bit, so
// that every failure can be replayed and watched.
//
// The world has time of its own and one queue of events. Each node has a disk that
// can be slow, stall, fail, and lose what was not synced; clocks that drift, jump
// and freeze; and can be paused, killed, restarted, wiped, or set back to an older
// copy of its disk. Between nodes messages get lost, doubled, delayed and
// overtaken, in one direction or both. An operator transfers leadership, changes
// membership and rolls restarts; clients send requests, give up, and try elsewhere.
// Nodes, and clients of their own, lease workers and make ids, with generators as in
// production.
// Each run draws which of these it suffers, and how badly (swarm testing, Groce et
// al., ISSTA 2012).
//
// What is checked, at every step or at the end: that the answers are linearizable
// (internal/core/lincheck), that nothing is issued at or above the ceiling (I1), that no
// two nodes serve in one term (I2), that all nodes have the same state at the same
// log index, that a node whose disk was set back or wiped is refused and a healthy
// one never (I6), that no id is made twice and none outside its lease (I9), and that
// the cluster answers and leases workers again soon after the last fault.
//
// Raft draws its election jitter from crypto/rand.Reader. A run replaces that
// variable, so a process runs one simulation at a time.
package sim
