// What there is: configurations, logs, timestamps, and the state of a whole cluster.
//
// The state is seen from outside, by somebody who sees all nodes at once and remembers everything.
// No node has it. Steps (steps.dfy) say which parts a node may look at.

type Node = nat // a member ID; a node with a new directory is another member (I6)
type Term = nat

// ---------------------------------------------------------------- configurations

// Who votes: raftpb.ConfState. While outgoing is not empty, the configuration is joint, and both sets count.
// Learners do not vote, so they are left out.
datatype Config = Config(voters: set<Node>, outgoing: set<Node>)

predicate IsMajority(q: set<Node>, of: set<Node>) { 2 * |q * of| > |of| }

// Code: answeredByQuorum and confirmRounds in ask.go, promisedByQuorum in lease.go; for votes Raft's tracker.
predicate IsQuorum(q: set<Node>, c: Config)
{
  IsMajority(q, c.voters) && (c.outgoing != {} ==> IsMajority(q, c.outgoing))
}

// Which configuration may follow another in the log: one voter more or less, into a joint configuration, or out
// of it. Code: propose in change.go, promoteLearners, and package confchange of etcd's Raft.
predicate Follows(a: Config, b: Config)
{
  || b == a // only learners have changed
  || (a.outgoing == {} && b.outgoing == {} && (exists n :: b.voters == a.voters + {n} || b.voters == a.voters - {n}))
  || (a.outgoing == {} && b.outgoing == a.voters)
  || (a.outgoing != {} && b.outgoing == {} && b.voters == a.voters)
}

// --------------------------------------------------------------------------- log

// One entry. Everything that changes neither the ceiling nor the voters is Other.
datatype Entry =
  | Reserve(term: Term, target: nat)  // oracle.KindReserve
  | Floor(term: Term, floor: nat)     // oracle.KindFloor
  | Change(term: Term, config: Config) // a change of membership, with the configuration that it leads to
  | Other(term: Term)

// A log, from the first entry after the formation of the cluster. Snapshots and compaction only store a beginning
// of it in another form.
type Log = seq<Entry>

function Max(a: int, b: int): int { if a > b then a else b }
function Min(a: int, b: int): int { if a < b then a else b }

const CeilingMax := 0x7fff_ffff_ffff_ffff // oracle.CeilingMax

// The ceiling after an entry. Code: State.Apply and State.reserve in internal/core/oracle/state.go.
function Raise(c: nat, e: Entry): nat
{
  match e
  case Reserve(_, target) => if c < CeilingMax then Max(c + 1, Min(target, CeilingMax)) else c
  case Floor(_, floor) => Max(c, Min(floor, CeilingMax - 2) + 2)
  case Change(_, _) => c
  case Other(_) => c
}

// The ceiling after a log, if it was base before.
function Ceiling(base: nat, log: Log): nat
  decreases |log|
{
  if |log| == 0 then base else Raise(Ceiling(base, log[..|log|-1]), log[|log|-1])
}

// The configuration after a log.
function ConfigAfter(genesis: Config, log: Log): Config
  decreases |log|
{
  if |log| == 0 then genesis
  else if log[|log|-1].Change? then log[|log|-1].config
  else ConfigAfter(genesis, log[..|log|-1])
}

// How many changes of membership a log has.
function Changes(log: Log): nat
  decreases |log|
{
  if |log| == 0 then 0 else Changes(log[..|log|-1]) + (if log[|log|-1].Change? then 1 else 0)
}

predicate IsPrefix(a: Log, b: Log) { |a| <= |b| && a == b[..|a|] }

// -------------------------------------------------------------------- timestamps

// 16 bytes: a time in nanoseconds and an index (isotone.Timestamp). Numbers are not bounded here.
datatype Timestamp = Timestamp(time: nat, index: nat)

predicate Before(a: Timestamp, b: Timestamp)
{
  a.time < b.time || (a.time == b.time && a.index < b.index)
}

predicate NotAfter(a: Timestamp, b: Timestamp) { a == b || Before(a, b) }

// ------------------------------------------------------------------------- state

// A moment is a number of steps since the beginning. No two steps share one.
type Moment = nat

// v is on the disk of voter: it votes for candidate in term.
datatype Vote = Vote(voter: Node, term: Term, candidate: Node)

// What issues timestamps: oracle.Allocator.
datatype Allocator = Closed | Open(next: Timestamp, ceiling: nat)

// One leadership: of one process, from when it has counted its votes until it steps down or crashes.
// Code: leading in internal/core/replica/leading.go, and Raft's log as this node has it.
datatype Tenure = Tenure(
  node: Node,
  elected: Moment,
  voters: set<Node>,  // whose votes it counted
  born: Log,          // its log when it was elected,
  bornApplied: nat,   // and how many entries of it were applied: they decide with whose votes it is elected
  log: Log,           // its log now
  applied: nat,       // how many entries of it are applied now
  active: bool,       // it still believes that it leads
  opening: nat,      // the number of its own first reservation, counted from 1; 0: none is applied yet
  alloc: Allocator)

// A round of the leader of a term (ask.go).
datatype Round = Round(term: Term, number: nat)
// A voter's answer to a round.
datatype Ack = Ack(round: Round, voter: Node)
// A request that arrived at the leader of a term.
datatype Request = Request(term: Term, arrived: Moment)
// What was answered: the timestamps from first to last, of which a 64-bit range leaves some out.
datatype Answer = Answer(request: Request, answered: Moment, first: Timestamp, last: Timestamp)

datatype State = State(
  now: Moment,
  genesis: Config,             // the voters when the cluster was formed
  base: nat,                   // the ceiling then; a restored cluster's is not 0 (I13)
  votes: set<Vote>,            // all that were ever cast
  tenures: map<Term, Tenure>,  // all that ever were
  rounds: map<Round, Moment>,  // when each began
  acks: set<Ack>,              // all that were ever sent; they arrive at any time, or never
  requests: set<Request>,      // all that ever arrived
  cleared: set<Request>,       // those that may be answered: confirmed by a round, or by a lease
  answers: set<Answer>,        // all that were ever given
  // Lease mode.
  promises: set<Ack>,          // answers to rounds with which a voter has promised to grant no vote for some ticks
  kept: set<Ack>,              // those of which the ticks have passed
  ended: set<Round>,           // rounds from which a lease has ended, by the clock of its leader
  forgone: set<Term>)          // terms whose leader has given up its lease, before a transfer

// The configuration that a leader uses now, and the one in which it was elected.
function ConfigNow(s: State, t: Tenure): Config
  requires t.applied <= |t.log|
{
  ConfigAfter(s.genesis, t.log[..t.applied])
}

function ConfigBorn(s: State, t: Tenure): Config
  requires t.bornApplied <= |t.born|
{
  ConfigAfter(s.genesis, t.born[..t.bornApplied])
}

// A leader's state.Ceiling.
function CeilingNow(s: State, t: Tenure): nat
  requires t.applied <= |t.log|
{
  Ceiling(s.base, t.log[..t.applied])
}
