// Package replica is the pure core of a node: Raft and the oracle's state machine
// behind one function,
//
//	effects := r.Step(input)
//
// An [Input] is everything that one turn of the node's loop collected: the time,
// ticks, messages from peers, requests of clients, writes that became durable. The
// [Effects] are everything to be done about it: messages to send, a write to make
// durable, requests to answer. The caller
//
//  1. sends Effects.Send at once,
//  2. hands Effects.Write to its storage, and returns it in Input.Persisted once it is
//     durable (never before: I1, I8),
//  3. answers the requests in Effects.Answers,
//
// in any order. Nothing else leaves or enters the core: it reads no clock, starts
// no goroutine, does no I/O and draws no randomness (except Raft's election jitter,
// which etcd's library takes from crypto/rand.Reader). The generators of ids that it
// makes read a clock of their own when they are asked for ids, outside of Step. The
// same code runs in production and in the simulator.
//
// # One request, from arrival to answer
//
// A request waits until a round that began after its arrival is confirmed (I4). A
// round is one Raft ReadIndex: a heartbeat with a fresh context that a quorum
// answers. All requests that wait are collapsed into the next round, and at most
// two rounds are in flight. When a round is confirmed, its requests, and those of
// every round before it, get their timestamps from the allocator, in order of
// arrival.
//
// The allocator opens when a reservation that was proposed in this very term is
// applied; its floor is the ceiling as it stood before (I2). Any change of term or
// role drops the allocator, the rounds and all waiting requests.
//
// # Why an answer in term T is linearizable
//
// Suppose that an operation B completed before request A arrived. If B was answered
// in term T, it was allocated before A, and the allocator only grows. If B was
// answered in an earlier term, its time lies below a ceiling committed in that
// term, hence in T's log before T's own reservation, hence at or below T's floor. B
// cannot have been answered in a later term: A's round began after A arrived, and
// the quorum that answered it had not voted in any later term by then.
//
// # Why ids never repeat
//
// A lease is the right to make the ids of one worker whose milliseconds lie in
// [Start, End) (I9). For each worker the log orders all grants, renewals and returns,
// and by the rules of internal/core/oracle a grant starts at or after the end of the one
// before. A holder goes by the log that was applied here, so it never believes in a
// later end than was granted; before it gives a lease back it makes no more ids of it,
// and it says how far it came. A process has a session of its own, and goes by leases of
// its session only, so it never continues what its node's former process had. Whether
// commands are lost, late, or carried out twice, which term they were proposed in, and
// what any clock says, is of no importance to this.
//
// A node that is cut off goes on making ids until its leases end: it asks nobody.
//
// A Replica is not safe for concurrent use; one goroutine owns it.
package replica
