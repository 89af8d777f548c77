// No step breaks what holds of each leadership by itself: its log, its reservation, its allocator (I1 to I3).

include "invariant.dfy"

lemma TenureStays(s: State, z: State, term: Term, t: Tenure)
  requires TenureOk(s, term, t) && z.genesis == s.genesis && z.base == s.base && s.now <= z.now
  ensures TenureOk(z, term, t)
{
}

// Code: leaderElected. A log is that of the leader that made its last entry, up to there.
lemma ElectedTenureIsOk(s: State, z: State, term: Term, t: Tenure)
  requires TenuresOk(s) && Elect(s, z, term, t) && LogMatching(z) && ChangesApplied(t)
  ensures TenureOk(z, term, t)
{
  var end := |t.born|;
  if end > 0 {
    assert z.tenures[term] == t;
    assert ComesFromItsLeader(z, term, end - 1);
    var last := t.log[end-1].term;
    assert z.tenures[last] == s.tenures[last];
    assert TenureOk(s, last, s.tenures[last]);
    var log := s.tenures[last].log;
    assert t.born == log[..end];
    LegalPrefix(s.genesis, log, end);
    forall i, j | 0 <= i < j < end ensures t.log[i].term <= t.log[j].term {
      assert t.log[i] == log[i] && t.log[j] == log[j];
    }
  }
  assert t.log[..|t.log|] == t.log;
}

// Code: propose in write.go and change.go.
lemma AppendedTenureIsOk(s: State, z: State, term: Term, e: Entry)
  requires TenuresOk(s) && Append(s, z, term, e)
  ensures TenureOk(z, term, z.tenures[term])
{
  var t, after := s.tenures[term], z.tenures[term];
  assert TenureOk(s, term, t);
  var log := after.log;
  assert log[..|t.log|] == t.log;
  assert log[..t.applied] == t.log[..t.applied];
  assert t.opening > 0 ==> log[..t.opening-1] == t.log[..t.opening-1];
  assert after.born == log[..|t.born|];
  assert t.log[..|t.log|] == t.log;
  forall i | 0 <= i < |log| && log[i].Change?
    ensures Follows(ConfigAfter(s.genesis, log[..i]), log[i].config)
  {
    assert log[..i] == t.log[..i];
    if i == |t.log| {
      NoChangeBetween(s.genesis, t.log, t.applied, |t.log|);
    }
  }
}

// Code: applyEntry and reservationApplied.
lemma AppliedTenureIsOk(s: State, z: State, term: Term)
  requires TenuresOk(s) && Apply(s, z, term)
  ensures TenureOk(z, term, z.tenures[term])
{
  var t := s.tenures[term];
  assert TenureOk(s, term, t);
  ChangesGrow(t.log, t.applied, t.applied + 1);
  CeilingGrows(s.base, t.log, t.applied, t.applied + 1);
}

lemma TenuresKept(s: State, z: State, step: Step)
  requires Inv(s) && Takes(s, z, step) && RaftSafe(z)
  ensures TenuresOk(z)
{
  forall t | t in z.tenures ensures TenureOk(z, t, z.tenures[t]) {
    if t in s.tenures {
      assert TenureOk(s, t, s.tenures[t]);
    }
    if t in s.tenures && z.tenures[t] == s.tenures[t] {
      TenureStays(s, z, t, s.tenures[t]);
    } else {
      match step
      case StepElect(term, u) => ElectedTenureIsOk(s, z, term, u);
      case StepAppend(term, e) => AppendedTenureIsOk(s, z, term, e);
      case StepApply(term) => AppliedTenureIsOk(s, z, term);
      case StepDepose(term) =>
      case StepOpen(term) =>
      case StepAdvance(term, next) =>
      case StepIssue(q, first, last, next) =>
      case StepVote(v) =>
      case StepArrive(term) =>
      case StepBeginRound(r) =>
      case StepAnswers(a, promise) =>
      case StepConfirm(r, q) =>
      case StepEndLease(r) =>
      case StepKeepPromise(p) =>
      case StepForgo(term) =>
      case StepCheckLease(term, q) =>
    }
  }
}
