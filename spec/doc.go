// Package spec describes the protocol of the oracle as a state machine. It is independent of the code that runs the protocol: it imports nothing of the product. [Spec.Step] takes the events of
// a run one by one, and refuses one that breaks a rule. The run may be one of the simulator, of real processes in a test, or of a node in production.
//
// What Raft promises is assumed: one leader a term, logs that agree, and that a leader has all that is committed (Ongaro and Ousterhout, "In Search of an Understandable Consensus
// Algorithm", USENIX ATC 2014). What Raft's promises rest on in this program is checked: what is acknowledged is on disk, a node votes once in a term, and applied logs agree.
//
// The rules, by the invariant that they keep (docs/correctness.md):
//
//	–   event        an event is of a process that has started, and of a known kind
//	I1  ceiling      a timestamp lies below a ceiling that the leader has applied
//	I2  opening      a leader issues timestamps once it has applied a reservation of its own term, and from the ceiling before that on
//	I2  leader       one node leads in a term
//	I3  once         no timestamp of a term is issued twice
//	I4  arrival      a timestamp is larger than all that the leader had answered when the request came
//	I4  order        a timestamp is larger than all that any node had answered when the request came
//	I4  round        a request is answered after a quorum has confirmed a round that began after it came
//	I4  confirmation a voter confirms rounds of its own term only, and a leader counts only confirmations that were sent
//	I5  lease        a request is answered without a round only while a quorum has promised to elect nobody else
//	I5  promise      a voter promises no more than it was asked for, and until then votes for nobody in a later term
//	I5  start        a voter votes for nobody until all promises of its former process have run out
//	I6  admission    a process is let in if its directory is that on record, is no older copy, and belongs to the cluster
//	I8  disk         a vote or an acknowledgement is sent once what it rests on is durable
//	I8  vote         a node votes for one candidate in a term
//	I9  grant        a worker lease begins at or after the end of the one before, or after what was used of it; only its holder has it extended
//	I9  hold         a process makes IDs only within the worker leases that the log has granted to it
//	I10 formation    a founder prepares for a cluster with the directories that all have said, and takes part in it once all are prepared
//	I11 ahead        what a leader reserves is no further ahead of the clock of a quorum, or of a floor that it may raise, than its reservations reach
//	I12 level        a leader raises the feature level to one that all voters have said that they know
//	I12 log          all nodes apply the same entries, and have the locks that these say
//	I12 state        all nodes have the same state once they have applied an entry
//	I13 floor        a timestamp is larger than the floor of its request, and than a floor that an operator had raised before that came
//	I14 clock        the cluster clock of a term starts above the ceiling before the term, goes on without a jump, and at nearly the rate of the leader's steady clock
//	I14 limit        a leader tells limits that the log allows, a length after the start of a round that a quorum has confirmed, and below the ceiling
//	I14 release      the log of a leader says that no limit runs once its clock has passed all that it has told
//	I14 report       a vote says no longer time than has passed since the voter answered a leader, led or started
//	I14 expiry       a leader issues once the limits of earlier terms have run out, by what a quorum of votes has said
//	I14 bounds       a process takes the clock to be within what follows from the readings of one term and their ages, and not beyond their limit
//	I14 axis         a timestamp is not before what the cluster clock may have shown to anyone when the request came, and not ahead of what it shows
//	I15 owner        a request for a timeline is answered by the process that owns it as far as its log says, and not once it is sealed
//	I15 fence        a voter tells an owner of all changes of owners, timelines and members in its log as received, but for those that a later leader may have cut off
//	I15 fences       an owner answers after a quorum has told it fences that it has applied, in a round that began after the request came, or under a lease of such a round
//	I15 wait         an owner answers once the lease of an earlier owner has run out
//	I15 tenure       what a later owner issues is larger than all that an earlier one has issued
//
// Those of sessions, locks and frontiers have the numbers of decision 41:
//
//	R1  connection   a session is alive, and told of its locks, over the connection only that has bound it with the highest epoch
//	R1  ttl          the TTL of a session is fixed, and that of its holds
//	R2  opening      a leader binds, ends and tells nothing before it issues timestamps; the sessions of all holds have a full TTL then
//	R3  round        that a session is alive, or that it has ended, is told after a round, as timestamps are
//	R4  end          a session ends once its client has been silent for its TTL, or without a connection for its LINGER, by the time that the leader ran and with a margin for the rates of clocks,
//	                 or when it was asked for; from then on it is not alive
//	R6  claim        a lock is claimed if nobody holds it, for a session that has asked for it and has not ended, in a restored cluster a minute after its floor
//	R6  token        the token of a claim is larger than all before it in the log; besides, it is issued as a timestamp is, by I1 to I4
//	R6  queue        a lock is claimed for the earliest ticket of those who wait
//	R6  told         a session is told that it holds a lock once that is applied
//	R7  release      a lock is released if its holder asked for that with its token, or has ended, and it is not shown from then on; before, nobody is told that it is free
//	R10 take         stamps that are issued to a session are above the frontier, and above all seals that were asked for
//	R14 frontier     the frontier does not sink in a term, and is below all stamps that may still be written, of sessions and of those whom nobody can ask; but what is sealed is not written
//	R15 seal         a leader asks for no seal of what a session may write that lives, and for none in its first 60 ms
//	R16 undecided    a session is fenced if its lowest stamp has not moved for a minute
//
// A Spec is not safe for concurrent use.
package spec
