// Package replica is the deterministic core of a node: Raft (go.etcd.io/raft) and the
// oracle's state machine behind one function,
//
//	effects := r.Step(input)
//
// An [Input] is what one turn of the node's loop collected: the time, ticks, messages from
// peers, requests of clients, a write that became durable. The [Effects] are what has to be
// done. The caller, in any order,
//
//  1. sends Effects.Send, AskClock and TellClock, and its hello or its clock where Announce or SendClock
//     ask for it,
//  2. hands Effects.Write to its storage and returns it in Input.Persisted once it is durable,
//     never before (I1, I8),
//  3. answers the requests in Effects.Answers and Effects.LeaseAnswers.
//
// The core reads no clock, starts no goroutine, does no I/O and draws no randomness, except
// Raft's election jitter, which the library takes from crypto/rand.Reader. The generators of
// ids that it makes read a clock when they are asked for ids, outside of Step. Production and
// the simulator run the same code.
//
// # Parts
//
// A [Replica] composes parts, each with its own state and no knowledge of the ones above it. What all
// of them share (settings, clocks, term, role, the log and the applied state) are the facts
// (facts.go). From the bottom up:
//
//   - clocks: the clamped clock of this node (clock.go)
//   - tail: what is proposed, and what the disk lacks (write.go)
//   - digests: whether this replica's state is that of the others (level.go)
//   - succession: votes, promises, and when to ask for votes (succession.go, promise.go, campaign.go)
//   - ids: worker leases and generators of this process (worker.go, generator.go)
//   - interval: what this node knows of the cluster clock (interval.go)
//   - queue: the requests that wait, the rounds in flight, and whose turn it is (round.go, turns.go)
//   - leading: the volatile state of a leader (leading.go): the allocator (issue.go), the read lease
//     (lease.go), the cluster clock (interval_clock.go, interval_release.go), reservations (reserve.go,
//     headroom.go), floors (floor.go), worker leases of clients (client_lease.go), sessions of clients (session.go)
//     and their locks (lock.go)
//   - formation: the founders of a new cluster (formation.go)
//   - admission and membership: who may connect, which changes of the members are possible, and their
//     records (admission.go, change_rules.go, change.go, register.go)
//
// Parts read Raft's status and propose entries. Only the replica steps Raft, handles its results, and
// lets one part follow another.
//
// # One request, from arrival to answer
//
// A request waits until a round that began after its arrival is confirmed (I4). A round is a
// heartbeat with a number of its own that a quorum answers, see ask.go. All waiting requests
// share the next round; at most two rounds are in flight. When a round is confirmed, its
// requests, and those of every round before it, get timestamps from the allocator in order
// of arrival.
//
// The allocator opens when a reservation that was proposed in this term is applied; its floor
// is the ceiling before that (I2). Any change of term or role drops the allocator, the rounds
// and all waiting requests.
//
// # Why an answer in term T is linearizable
//
// Suppose that an operation B completed before request A arrived. If B was answered in term
// T, it was allocated before A, and the allocator only grows. If B was answered in an earlier
// term, its time lies below a ceiling committed in that term, hence in T's log before T's own
// reservation, hence at or below T's floor. B cannot have been answered in a later term: A's
// round began after A arrived, and the quorum that answered it had not voted in any later
// term by then.
//
// # Why ids never repeat
//
// A worker lease is the right to make the ids of one worker whose milliseconds lie in
// [Start, End) (I9). For each worker the log orders all grants, renewals and releases, and by
// the rules of internal/core/oracle a grant starts at or after the end of the one before. A
// holder relies on the log applied on its node, so it never assumes a later end than was
// granted. Before it releases a lease it stops making ids of it, and the release says how far
// it came. A process has its own session and uses leases of that session only, so it never
// continues a lease of its predecessor. None of this depends on clocks, on terms, or on
// commands being neither lost, late nor applied twice.
//
// A node that is cut off makes ids until its leases end, without asking anybody.
//
// A Replica is not safe for concurrent use; one goroutine owns it.
package replica
