// Package sim simulates a cluster of real replicas under faults, on one thread and from one
// seed. The same seed gives the same run, bit for bit, so every failure can be replayed.
//
// The simulated world has its own time and one queue of events. Disks have the journals of
// production (internal/core/journal); they are slow, hang, fail, rot, and lose what was not synced,
// or sectors of it. Clocks drift, jump and freeze; processes are paused, killed, restarted, and find
// their disk wiped or set back. Messages are the bytes of production (internal/core/wire); they are
// lost, doubled, delayed and reordered, in one direction or both. An operator transfers leadership,
// changes the membership and restarts nodes one after the other, edits the addresses when all machines have
// moved, and restores the cluster from a backup, or from one disk, when all others are lost. Clients send requests, give up, and try other nodes. Nodes and
// clients lease workers and make ids with the generators of production. In some runs users with sessions hold locks and write into stores with
// fences; they are paused, die, and lose their connections. Others do so over HTTP, where each request may be lost, come late or be given up. Each run draws its faults
// and their severity (swarm testing, Groce et al., ISSTA 2012).
//
// Checked at every step or at the end: that the answers are linearizable
// (internal/core/lincheck), that nothing is issued at or above the ceiling (I1), that no two
// nodes serve in one term (I2), that nodes have the same state at the same log index, that a
// node with a wiped or older disk is refused and a healthy one never (I6), that no queue
// exceeds its bound (I7), that no id is made twice or outside its lease (I9), that one cluster
// is formed (I10), that a quorum's clocks vouch for the ceiling (I11), that a restored cluster
// goes back in neither timestamps nor ids (I13), that messages arrive as they were sent and journals
// hold what was acknowledged (I8), that no two sessions believe in one lock, that no holder is fenced and no write accepted at or below a
// frontier that was told (R1 to R16 of decision 41), that the cluster answers in each form and leases workers again
// soon after the last fault, and that it goes on answering while links stay broken beside a quorum.
//
// Raft draws its election jitter from crypto/rand.Reader. A run replaces that variable, so a
// process runs one simulation at a time.
package sim
