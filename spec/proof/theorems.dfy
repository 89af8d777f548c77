// The two promises of docs/correctness.md, in quorum mode: no timestamp is issued twice, and timestamps
// respect real time. For any number of nodes and terms, and any changes of membership.

include "kept.dfy"

// A run of a cluster, in which Raft keeps its promises.
predicate IsRun(run: seq<State>)
{
  && |run| > 0
  && Init(run[0])
  && (forall i :: 0 <= i < |run| - 1 ==> Next(run[i], run[i+1]))
  && (forall i :: 0 <= i < |run| ==> RaftSafe(run[i]))
}

lemma RunKeepsInv(run: seq<State>, i: nat)
  requires IsRun(run) && i < |run|
  ensures Inv(run[i])
{
  if i == 0 {
    InitHolds(run[0]);
  } else {
    RunKeepsInv(run, i - 1);
    assert Next(run[i-1], run[i-1+1]);
    StepKeeps(run[i-1], run[i]);
  }
}

// I1 and I2: what an earlier term has issued is below what a later one issues. The later leader began at the ceiling before
// its own reservation, and all that the earlier leader had applied is in the log before it.
// Code: reservationApplied in reserve.go, Allocator.Open.
lemma TermsDoNotOverlap(s: State, a: Answer, b: Answer)
  requires Inv(s) && LeaderCompleteness(s)
  requires a in s.answers && b in s.answers && a.request.term < b.request.term
  ensures Before(a.last, b.first)
{
  assert AnswerOk(s, a) && AnswerOk(s, b);
  var t, u := s.tenures[a.request.term], s.tenures[b.request.term];
  assert TenureOk(s, a.request.term, t) && TenureOk(s, b.request.term, u);
  assert HasAllApplied(s, a.request.term, b.request.term);
  assert |u.born| <= u.opening - 1; // its reservation is of its own term
  assert u.born == u.log[..|u.born|];
  assert t.log[..t.applied] == u.log[..t.applied];
  CeilingGrows(s.base, u.log, t.applied, u.opening - 1);
}

lemma AnswersAreApart(s: State, a: Answer, b: Answer)
  requires Inv(s) && LeaderCompleteness(s)
  requires a in s.answers && b in s.answers && a != b
  ensures Before(a.last, b.first) || Before(b.last, a.first)
{
  if a.request.term < b.request.term {
    TermsDoNotOverlap(s, a, b);
  } else if b.request.term < a.request.term {
    TermsDoNotOverlap(s, b, a);
  }
}

predicate Has(a: Answer, t: Timestamp) { NotAfter(a.first, t) && NotAfter(t, a.last) }

// Promise 1: no timestamp is in two answers. Answers are never forgotten, so the state at the end of a run has all of them.
lemma NoTimestampTwice(run: seq<State>, a: Answer, b: Answer, t: Timestamp)
  requires IsRun(run)
  requires a in run[|run|-1].answers && b in run[|run|-1].answers
  requires Has(a, t) && Has(b, t)
  ensures a == b
{
  RunKeepsInv(run, |run| - 1);
  if a != b { AnswersAreApart(run[|run|-1], a, b); }
}

// Promise 2: what is answered to a request that arrived after another was answered is larger. A client begins before
// its request arrives, and has its answer after it was given, so the same holds between clients.
lemma RealTimeOrder(run: seq<State>, a: Answer, b: Answer)
  requires IsRun(run)
  requires a in run[|run|-1].answers && b in run[|run|-1].answers
  requires a.answered < b.request.arrived
  ensures Before(a.last, b.first)
{
  var s := run[|run|-1];
  RunKeepsInv(run, |run| - 1);
  assert AnswerOk(s, a) && AnswerOk(s, b);
  assert a.request in s.requests && b.request in s.requests;
  if a.request.term < b.request.term {
    TermsDoNotOverlap(s, a, b);
  } else if b.request.term < a.request.term {
    assert false; // ClearedOk: no later term had a leader when b arrived, so a was answered after that
  }
}
