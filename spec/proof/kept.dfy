// No step breaks the invariant.

include "tenures.dfy"
include "later.dfy"

lemma ElectionsKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step) && RaftSafe(z)
  ensures ElectionsOk(z)
{
  forall t | t in z.tenures ensures ElectionOk(z, t, z.tenures[t]) {
    if t in s.tenures { assert ElectionOk(s, t, s.tenures[t]); }
  }
}

lemma BornLaterKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step) && RaftSafe(z)
  ensures BornLater(z)
{
  forall u, i | u in z.tenures && 0 <= i < |z.tenures[u].born| ensures MakerIsEarlier(z, u, i) {
    if u in s.tenures {
      assert z.tenures[u].born == s.tenures[u].born;
      assert MakerIsEarlier(s, u, i);
    } else {
      // u is elected now; who made the entries in its log was elected before
      assert z.tenures[u].log[i] == z.tenures[u].born[i];
      assert ComesFromItsLeader(z, u, i);
      var t := z.tenures[u].born[i].term;
      assert t < u && t in s.tenures;
      assert TenureOk(s, t, s.tenures[t]);
    }
  }
}

lemma RoundsKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step)
  ensures RoundsOk(z)
{
  forall r | r in z.rounds ensures r.term in z.tenures && z.tenures[r.term].opening > 0 && z.rounds[r] < z.now {
    assert TenureOk(s, r.term, s.tenures[r.term]);
  }
}

// Code: answerRound in ask.go.
lemma AcksKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step)
  ensures AcksOk(z)
{
  forall a, u | a in z.acks && a.round in z.rounds && u in z.tenures && a.round.term < u && a.voter in z.tenures[u].voters
    ensures z.rounds[a.round] <= z.tenures[u].elected
  {
    if u in s.tenures {
      assert ElectionOk(s, u, s.tenures[u]);
      assert z.tenures[u].voters == s.tenures[u].voters && z.tenures[u].elected == s.tenures[u].elected;
      if a !in s.acks {
        assert Vote(a.voter, u, s.tenures[u].node) in s.votes; // so it would not have answered
      }
    }
  }
}

// I5. Code: mayVote, promise and answerRound.
lemma PromisesKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step)
  ensures PromisesOk(z)
{
}

lemma RequestsKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step)
  ensures RequestsOk(z)
{
  forall q | q in z.requests ensures q.term in z.tenures && z.tenures[q.term].elected < q.arrived < z.now {
    assert TenureOk(s, q.term, s.tenures[q.term]);
  }
}

// I4. Code: confirm in round.go.
lemma ClearedKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step) && RaftSafe(s)
  ensures ClearedOk(z)
{
  forall q, u | q in z.cleared && u in z.tenures && q.term < u ensures q.arrived <= z.tenures[u].elected {
    if u !in s.tenures {
      assert q in s.requests; // it arrived before this election
    } else if q !in s.cleared {
      match step {
        case StepConfirm(r, quorum) => NoLaterLeader(s, r, quorum, u);
        case StepCheckLease(term, quorum) =>
          assert TenureOk(s, term, s.tenures[term]);
          NoLeaderBesideLease(s, term, quorum, u);
      }
    }
  }
}

// The answers of a term lie below what it issues next (I3), and below its ceiling (I1).
lemma AnswersKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step) && TenuresOk(z)
  ensures AnswersOk(z)
{
  forall a | a in z.answers ensures AnswerOk(z, a) {
    var term := a.request.term;
    assert TenureOk(s, term, s.tenures[term]) && TenureOk(z, term, z.tenures[term]);
    if a in s.answers {
      assert AnswerOk(s, a);
      AnswerStays(s, z, step, a);
    } else {
      assert a.request in s.requests;
    }
  }
  forall a, b | a in z.answers && b in z.answers && a.request.term == b.request.term
    ensures (a.answered < b.answered ==> Before(a.last, b.first)) && (a.answered == b.answered ==> a == b)
  {
    if a in s.answers { assert AnswerOk(s, a); }
    if b in s.answers { assert AnswerOk(s, b); }
  }
}

lemma AnswerStays(s: State, z: State, step: Step, a: Answer)
  requires Inv(s) && Takes(s, z, step) && TenuresOk(z)
  requires AnswerOk(s, a)
  ensures AnswerOk(z, a)
{
  var term := a.request.term;
  var t, after := s.tenures[term], z.tenures[term];
  assert TenureOk(s, term, t) && TenureOk(z, term, after);
  assert t.applied <= after.applied && after.log[..t.applied] == t.log[..t.applied];
  assert after.log[..t.opening-1] == t.log[..t.opening-1];
  CeilingGrows(s.base, after.log, t.applied, after.applied);
}

// Inv is inductive: it holds at the beginning, and no step breaks it.
lemma InitHolds(s: State)
  requires Init(s)
  ensures Inv(s)
{
}

lemma StepKeeps(s: State, z: State)
  requires Inv(s) && RaftSafe(s) && Next(s, z) && RaftSafe(z)
  ensures Inv(z)
{
  var step :| Takes(s, z, step);
  TenuresKept(s, z, step);
  ElectionsKept(s, z, step);
  BornLaterKept(s, z, step);
  RoundsKept(s, z, step);
  AcksKept(s, z, step);
  PromisesKept(s, z, step);
  RequestsKept(s, z, step);
  ClearedKept(s, z, step);
  AnswersKept(s, z, step);
}
