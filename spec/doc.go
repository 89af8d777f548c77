// Package spec is the protocol of the oracle as a state machine, apart from the code that runs it: it imports nothing of the product. [Spec.Step] takes one event of a run after the
// other and refuses an event that no state permits. So a run of the simulator, of a storm, or of a node in production can be held against it.
//
// What Raft promises is assumed: one leader a term, logs that agree, and that a leader has all that is committed (Ongaro and Ousterhout, "In Search of an Understandable Consensus
// Algorithm", USENIX ATC 2014). What Raft's promises rest on in this program is checked: what is acknowledged is on disk, a node votes once in a term, and applied logs agree.
//
// The rules, by the invariant that they keep (docs/correctness.md):
//
//	I1  ceiling    a timestamp lies below a ceiling that the leader has applied
//	I2  opening    a leader issues only after it has applied a reservation of its own term, and from the ceiling before that on
//	I2  leader     one node leads in a term
//	I3  once       no timestamp of a term is issued twice
//	I4  arrival    a timestamp is larger than all that the leader had answered when the request came
//	I4  order      and than all that any node had answered then
//	I4  round      a request is answered after a quorum has confirmed a round that began after it came, or under a lease
//	I4  vouch      a voter confirms a round of its own term only, and nobody hears a confirmation that was not sent
//	I5  lease      an answer without a round rests on promises of a quorum that have not run out
//	I5  promise    a voter promises what it was asked for, and grants no vote for a later term before that has passed
//	I5  start      nor in the first ticks after it was started; events of a process come after its start
//	I8  disk       votes and acknowledgements are sent once what they rest on is durable
//	I8  vote       a node votes for one candidate in a term
//	I9  grant      a grant of a worker begins after the end of the one before, or after what was used of it; its end grows at the request of its holder only
//	I9  hold       a process makes ids only of what the log has granted to it, and no further
//	I12 log        all nodes apply the same entries
//	I13 floor      a timestamp is larger than the floor of its request, and than what an operator has raised before
//	I15 owner      who answers for a timeline is its owner, as far as its log says, and it is not sealed
//	I15 fence      a voter tells an owner of all changes of owners, timelines and members in its log as received
//	I15 fences     an owner answers after a quorum has told it fences that it has applied, in a round that began after the request came, or under a lease of that
//	I15 wait       and, after an owner with a lease, once that has run out
//	I15 tenure     what a later owner issues is larger than all that an earlier one has issued
//
// A Spec is not safe for concurrent use.
package spec
