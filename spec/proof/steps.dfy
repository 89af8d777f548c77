// What can happen: Init, and a predicate for each kind of step. Each step names the Go function that takes it.
//
// A step may be taken whenever its predicate allows it, in any order and any number of times. So pauses, slow disks,
// lost, late and doubled messages, and partitions need no steps of their own. A crash is Depose: a node keeps its votes and
// what Raft has made durable, and forgets the rest.

include "axioms.dfy"

// A new cluster, or a restored one: nothing has happened. Code: formation.go, seed.go.
predicate Init(s: State)
{
  && s.votes == {} && s.tenures == map[] && s.rounds == map[] && s.acks == {}
  && s.requests == {} && s.cleared == {} && s.answers == {}
  && s.promises == {} && s.kept == {} && s.ended == {} && s.forgone == {}
}

// A voter votes for a candidate in a term, perhaps for itself. A leader that does so has stepped down before (observe in raft.go).
// Its vote is on disk before anybody learns of it, so no crash takes it back. Code: Raft, and answerVotes in write.go.
//
// It holds the promises that it has made (mayVote in promise.go), but for the election of a transfer, whose leader has
// forgone its lease (isTransfer). A restart ends no promise: after it a node grants no vote for as long as any
// promise lasts.
predicate CastVote(s: State, z: State, v: Vote)
{
  && ((forall p :: p in s.promises && p.voter == v.voter ==> p in s.kept) || (v.term > 0 && v.term - 1 in s.forgone))
  && (forall w :: w in s.votes && w.voter == v.voter ==> w.term < v.term)
  && (forall t :: t in s.tenures && s.tenures[t].active ==> s.tenures[t].node != v.voter)
  && z == s.(now := s.now + 1, votes := s.votes + {v})
}

// A node has the votes of a quorum of the configuration that it has applied, and leads. Its log has entries of earlier terms
// only. Its own vote, with the term, is on disk (countGrants in campaign.go). Code: Raft, and leaderElected.
predicate Elect(s: State, z: State, term: Term, t: Tenure)
{
  && ElectionSafety(s, term)
  && t.elected == s.now
  && t.bornApplied <= |t.born|
  && IsQuorum(t.voters, ConfigBorn(s, t))
  && (forall v :: v in t.voters + {t.node} ==> Vote(v, term, t.node) in s.votes)
  && (forall w :: w in s.votes && w.voter == t.node ==> w.term <= term)
  && (forall i :: 0 <= i < |t.born| ==> t.born[i].term < term)
  && t.log == t.born && t.applied == t.bornApplied
  && t.active && t.opening == 0 && t.alloc == Closed
  && z == s.(now := s.now + 1, tenures := s.tenures[term := t])
}

// What a leader does within its term changes only its own tenure.
predicate Leads(s: State, z: State, term: Term, t: Tenure)
{
  term in s.tenures && s.tenures[term].active && z == s.(now := s.now + 1, tenures := s.tenures[term := t])
}

// A leader steps down, or its process ends. All that is volatile is gone (I2). Code: observe in raft.go.
predicate Depose(s: State, z: State, term: Term)
{
  term in s.tenures && Leads(s, z, term, s.tenures[term].(active := false))
}

// A leader adds an entry of its term to its log: its reservations, floors, changes, and others of
// all kinds. Code: propose in write.go, proposeReservation in reserve.go; for changes propose in change.go.
// A change follows the configuration of now, and every earlier change is applied (pendingConfIndex in Raft's library).
predicate Append(s: State, z: State, term: Term, e: Entry)
{
  && term in s.tenures
  && var t := s.tenures[term];
  && e.term == term
  && t.applied <= |t.log|
  && (e.Change? ==> Changes(t.log) == Changes(t.log[..t.applied]) && Follows(ConfigNow(s, t), e.config))
  && Leads(s, z, term, t.(log := t.log + [e]))
}

// A leader applies the next entry of its log, which Raft says is committed (LeaderCompleteness). Its first reservation of
// its own term is noted (I2). An open allocator is extended. Code: applyEntry in raft.go, reservationApplied in
// reserve.go, floorApplied in floor.go.
predicate Apply(s: State, z: State, term: Term)
{
  && term in s.tenures
  && var t := s.tenures[term];
  && t.applied < |t.log|
  && var e := t.log[t.applied];
  && Leads(s, z, term, t.(
      applied := t.applied + 1,
      opening := if t.opening == 0 && e.Reserve? && e.term == term then t.applied + 1 else t.opening,
      alloc := if t.alloc.Open? then Open(t.alloc.next, Ceiling(s.base, t.log[..t.applied+1])) else Closed))
}

// The ceiling before a leader's own reservation, where it begins. Code: applyEntry and reservationApplied; the
// zero timestamp is not issued.
function Floor0(base: nat, t: Tenure): nat
  requires 1 <= t.opening <= |t.log|
{
  Max(Ceiling(base, t.log[..t.opening-1]), 1)
}

// A leader opens its allocator, at once or once the cluster clock allows it (tryOpen in interval_clock.go).
predicate OpenAllocator(s: State, z: State, term: Term)
{
  && term in s.tenures
  && var t := s.tenures[term];
  && t.alloc == Closed
  && 1 <= t.opening <= t.applied <= |t.log|
  && Floor0(s.base, t) < CeilingNow(s, t)
  && Leads(s, z, term, t.(alloc := Open(Timestamp(Floor0(s.base, t), 0), CeilingNow(s, t))))
}

// Time goes on below the ceiling, never back (I1, I3): with an epoch, past the floor of a client, or
// to the next nanosecond because the index is used up. Code: Allocator.Advance, Pass and Next in allocator.go.
predicate Advance(s: State, z: State, term: Term, next: Timestamp)
{
  && term in s.tenures
  && var t := s.tenures[term];
  && t.alloc.Open?
  && NotAfter(t.alloc.next, next)
  && next.time < t.alloc.ceiling
  && Leads(s, z, term, t.(alloc := t.alloc.(next := next)))
}

// A request arrives at a leader, and waits for a round. Code: enqueue in round.go.
predicate Arrive(s: State, z: State, term: Term)
{
  && term in s.tenures && s.tenures[term].active
  && z == s.(now := s.now + 1, requests := s.requests + {Request(term, s.now)})
}

// A leader begins a round. Its number is larger than those of all its rounds before. Code: startRound and beginRound in round.go.
predicate BeginRound(s: State, z: State, r: Round)
{
  && r.term in s.tenures && s.tenures[r.term].active
  && s.tenures[r.term].alloc.Open?
  && (forall o :: o in s.rounds && o.term == r.term ==> o.number < r.number)
  && z == s.(now := s.now + 1, rounds := s.rounds[r := s.now])
}

// A voter answers a round: it has not voted in a later term. Whether it is a voter is for the leader to count.
// (The code asks for more: that its term is that of the round. See answerRound in ask.go.) It may promise to
// grant no vote (promise in promise.go).
predicate Answers(s: State, z: State, a: Ack, promise: bool)
{
  && a.round in s.rounds
  && (forall v :: v in s.votes && v.voter == a.voter ==> v.term <= a.round.term)
  && z == s.(now := s.now + 1, acks := s.acks + {a}, promises := if promise then s.promises + {a} else s.promises)
}

// Who has confirmed a round: the voters that have answered it or a later one of the term, and the leader itself.
predicate HasConfirmed(s: State, r: Round, v: Node)
  requires r.term in s.tenures
{
  v == s.tenures[r.term].node || exists n :: n >= r.number && Ack(Round(r.term, n), v) in s.acks
}

// A quorum, by the configuration that the leader has applied now, has confirmed a round. All requests that arrived before it
// began may be answered (I4). Code: confirmRounds in ask.go, confirm and upTo in round.go.
predicate Confirm(s: State, z: State, r: Round, quorum: set<Node>)
{
  && r in s.rounds
  && r.term in s.tenures
  && var t := s.tenures[r.term];
  && t.active
  && t.applied <= |t.log|
  && IsQuorum(quorum, ConfigNow(s, t))
  && (forall v :: v in quorum ==> HasConfirmed(s, r, v))
  && z == s.(now := s.now + 1, cleared := s.cleared + (set q | q in s.requests && q.term == r.term && q.arrived < s.rounds[r]))
}

// ------------------------------------------------------------------- lease mode

// A lease from a round ends, by the clock of its leader. Code: length in lease.go.
predicate EndLease(s: State, z: State, r: Round)
{
  r in s.rounds && z == s.(now := s.now + 1, ended := s.ended + {r})
}

// The ticks of a promise have passed.
predicate KeepPromise(s: State, z: State, p: Ack)
{
  p in s.promises && ClocksAreRight(s, p) && z == s.(now := s.now + 1, kept := s.kept + {p})
}

// A leader gives up its lease for the rest of its term. Only then may it transfer its leadership. Code: transferNow in reserve.go.
predicate Forgo(s: State, z: State, term: Term)
{
  && term in s.tenures && s.tenures[term].active
  && z == s.(now := s.now + 1, forgone := s.forgone + {term})
}

// A voter stands by a lease: it has promised so in its answer to a round, counted from which the lease has not ended. A leader
// votes for nobody else in its term.
predicate StandsBy(s: State, term: Term, v: Node)
  requires term in s.tenures
{
  v == s.tenures[term].node || exists n :: Ack(Round(term, n), v) in s.promises && Round(term, n) !in s.ended
}

// A leader reads its clock and has a lease. All requests that have arrived before may be answered (I5). Code: checkLease, extend
// and promisedByQuorum in lease.go.
predicate CheckLease(s: State, z: State, term: Term, quorum: set<Node>)
{
  && term in s.tenures
  && var t := s.tenures[term];
  && t.active && t.alloc.Open?
  && term !in s.forgone
  && t.applied <= |t.log|
  && IsQuorum(quorum, ConfigNow(s, t))
  && (forall v :: v in quorum ==> StandsBy(s, term, v))
  && z == s.(now := s.now + 1, cleared := s.cleared + (set q | q in s.requests && q.term == term))
}

// ----------------------------------------------------------------------- answers

// A leader answers a request that may be answered: with the next timestamps, below the ceiling, which are used up then (I1, I3).
// Code: serve and issue in issue.go; Allocator.Next and Next64 in allocator.go.
predicate Issue(s: State, z: State, q: Request, first: Timestamp, last: Timestamp, next: Timestamp)
{
  && q in s.cleared
  && q.term in s.tenures
  && var t := s.tenures[q.term];
  && t.active
  && t.alloc.Open?
  && NotAfter(t.alloc.next, first) && NotAfter(first, last)
  && last.time < t.alloc.ceiling
  && next == Timestamp(last.time, last.index + 1)
  && z == s.(now := s.now + 1,
       tenures := s.tenures[q.term := t.(alloc := t.alloc.(next := next))],
       answers := s.answers + {Answer(q, s.now, first, last)})
}

// One step, with all that it chooses.
datatype Step =
  | StepVote(vote: Vote)
  | StepElect(term: Term, tenure: Tenure)
  | StepDepose(term: Term)
  | StepAppend(term: Term, entry: Entry)
  | StepApply(term: Term)
  | StepOpen(term: Term)
  | StepAdvance(term: Term, next: Timestamp)
  | StepArrive(term: Term)
  | StepBeginRound(round: Round)
  | StepAnswers(ack: Ack, promise: bool)
  | StepConfirm(round: Round, quorum: set<Node>)
  | StepEndLease(round: Round)
  | StepKeepPromise(ack: Ack)
  | StepForgo(term: Term)
  | StepCheckLease(term: Term, quorum: set<Node>)
  | StepIssue(request: Request, first: Timestamp, last: Timestamp, next: Timestamp)

predicate Takes(s: State, z: State, step: Step)
{
  match step
  case StepVote(v) => CastVote(s, z, v)
  case StepElect(term, t) => Elect(s, z, term, t)
  case StepDepose(term) => Depose(s, z, term)
  case StepAppend(term, e) => Append(s, z, term, e)
  case StepApply(term) => Apply(s, z, term)
  case StepOpen(term) => OpenAllocator(s, z, term)
  case StepAdvance(term, next) => Advance(s, z, term, next)
  case StepArrive(term) => Arrive(s, z, term)
  case StepBeginRound(r) => BeginRound(s, z, r)
  case StepAnswers(a, promise) => Answers(s, z, a, promise)
  case StepConfirm(r, q) => Confirm(s, z, r, q)
  case StepEndLease(r) => EndLease(s, z, r)
  case StepKeepPromise(p) => KeepPromise(s, z, p)
  case StepForgo(term) => Forgo(s, z, term)
  case StepCheckLease(term, q) => CheckLease(s, z, term, q)
  case StepIssue(q, first, last, next) => Issue(s, z, q, first, last, next)
}

predicate Next(s: State, z: State) { exists step :: Takes(s, z, step) }
