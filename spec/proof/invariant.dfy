// What holds in every state that can be reached: the inductive invariant.

include "steps.dfy"
include "logs.dfy"

// One leadership, by itself. Code: leading.go, allocator.go.
predicate TenureOk(s: State, term: Term, t: Tenure)
{
  && t.elected < s.now
  && t.bornApplied <= |t.born| && IsPrefix(t.born, t.log) && t.applied <= |t.log|
  // The log: entries of earlier terms, then its own.
  && (forall i :: 0 <= i < |t.born| ==> t.log[i].term < term)
  && (forall i :: |t.born| <= i < |t.log| ==> t.log[i].term == term)
  && (forall i, j :: 0 <= i < j < |t.log| ==> t.log[i].term <= t.log[j].term)
  // Changes of membership: each may follow the one before, and at most one is not applied.
  && LegalChanges(s.genesis, t.log)
  && Changes(t.log) <= Changes(t.log[..t.applied]) + 1
  // I2: its own reservation is applied, and has its term.
  && t.opening <= t.applied
  && (t.opening > 0 ==> t.log[t.opening-1].term == term)
  // I1 and I2: what is issued next is between the ceiling before that reservation and the present one.
  && (t.alloc.Open? ==>
        && t.opening > 0
        && Floor0(s.base, t) <= t.alloc.next.time < t.alloc.ceiling <= CeilingNow(s, t))
}

predicate TenuresOk(s: State)
{
  forall t {:trigger TenureOk(s, t, s.tenures[t])} :: t in s.tenures ==> TenureOk(s, t, s.tenures[t])
}

// Who elected whom. A leader that is still active has voted in no later term.
predicate ElectionOk(s: State, term: Term, t: Tenure)
{
  && ChangesApplied(t)
  && IsQuorum(t.voters, ConfigBorn(s, t))
  && (forall v :: v in t.voters ==> Vote(v, term, t.node) in s.votes)
  && (t.active ==> forall w :: w in s.votes && w.voter == t.node ==> w.term <= term)
}

predicate ElectionsOk(s: State)
{
  forall t {:trigger ElectionOk(s, t, s.tenures[t])} :: t in s.tenures ==> ElectionOk(s, t, s.tenures[t])
}

// Whoever made an entry that a leader found in its log had been elected before that leader.
predicate BornLater(s: State)
{
  forall u, i {:trigger MakerIsEarlier(s, u, i)} :: u in s.tenures && 0 <= i < |s.tenures[u].born| ==> MakerIsEarlier(s, u, i)
}

predicate MakerIsEarlier(s: State, u: Term, i: int)
  requires u in s.tenures && 0 <= i < |s.tenures[u].born|
{
  var t := s.tenures[u].born[i].term;
  t in s.tenures && s.tenures[t].elected < s.tenures[u].elected
}

// Rounds have numbers in the order in which they began, and belong to leaders with a reservation.
predicate RoundsOk(s: State)
{
  && (forall r :: r in s.rounds ==> r.term in s.tenures && s.tenures[r.term].opening > 0 && s.rounds[r] < s.now)
  && (forall r, o :: r in s.rounds && o in s.rounds && r.term == o.term && r.number < o.number ==> s.rounds[r] < s.rounds[o])
}

// Who has answered a round has elected no later leader before that round began. Code: answerRound in ask.go.
predicate AcksOk(s: State)
{
  && (forall a :: a in s.acks ==> a.round in s.rounds)
  && (forall a, u :: a in s.acks && a.round in s.rounds && u in s.tenures && a.round.term < u && a.voter in s.tenures[u].voters ==>
        s.rounds[a.round] <= s.tenures[u].elected)
}

// I5: who has promised has voted in no later term while the lease lasts, unless that term came by a transfer.
predicate PromisesOk(s: State)
{
  && s.promises <= s.acks
  && (forall p :: p in s.kept ==> p.round in s.ended)
  && (forall t :: t in s.forgone ==> t in s.tenures)
  && (forall p, v :: p in s.promises && v in s.votes && p.voter == v.voter && p.round.term < v.term ==>
        p.round in s.ended || v.term - 1 in s.forgone)
}

predicate RequestsOk(s: State)
{
  && s.cleared <= s.requests
  && (forall q :: q in s.requests ==> q.term in s.tenures && s.tenures[q.term].elected < q.arrived < s.now)
}

// I4: when a request arrived that may be answered, no later term had a leader.
predicate ClearedOk(s: State)
{
  forall q, u :: q in s.cleared && u in s.tenures && q.term < u ==> q.arrived <= s.tenures[u].elected
}

// One answer, and where it is in its term.
predicate AnswerOk(s: State, a: Answer)
{
  && a.request in s.cleared
  && a.request.arrived < a.answered < s.now
  && a.request.term in s.tenures
  && var t := s.tenures[a.request.term];
  && 1 <= t.opening <= t.applied <= |t.log|
  && t.alloc.Open?
  && NotAfter(a.first, a.last)
  && Floor0(s.base, t) <= a.first.time
  && a.last.time < CeilingNow(s, t)
  && Before(a.last, t.alloc.next)
}

predicate AnswersOk(s: State)
{
  && (forall a :: a in s.answers ==> AnswerOk(s, a))
  && (forall a, b :: a in s.answers && b in s.answers && a.request.term == b.request.term ==>
        && (a.answered < b.answered ==> Before(a.last, b.first))
        && (a.answered == b.answered ==> a == b))
}

predicate Inv(s: State)
{
  TenuresOk(s) && ElectionsOk(s) && BornLater(s) && RoundsOk(s) && AcksOk(s) && PromisesOk(s) &&
  RequestsOk(s) && ClearedOk(s) && AnswersOk(s)
}
