// The premises can be met. Whatever is proved of runs would be worth nothing if there were none. This one has two terms, a change of
// membership, an answer after a round, and one by a lease.

include "theorems.dfy"

lemma Extend(run: seq<State>, z: State, step: Step) returns (longer: seq<State>)
  requires IsRun(run) && Takes(run[|run|-1], z, step) && RaftSafe(z)
  ensures IsRun(longer) && longer[|longer|-1] == z
{
  longer := run + [z];
  assert Next(run[|run|-1], z);
  forall i | 0 <= i < |longer| - 1 ensures Next(longer[i], longer[i+1]) {
    if i < |run| - 1 { assert Next(run[i], run[i+1]); }
  }
}

// A step that changes no leadership breaks no promise of Raft.
lemma ExtendOnly(run: seq<State>, z: State, step: Step) returns (longer: seq<State>)
  requires IsRun(run) && Takes(run[|run|-1], z, step) && z.tenures == run[|run|-1].tenures
  ensures IsRun(longer) && longer[|longer|-1] == z
{
  var s := run[|run|-1];
  assert RaftSafe(s);
  forall u, i | u in z.tenures && 0 <= i < |z.tenures[u].log| ensures ComesFromItsLeader(z, u, i) {
    assert ComesFromItsLeader(s, u, i);
  }
  forall t, u | t in z.tenures && u in z.tenures && t < u ensures HasAllApplied(z, t, u) {
    assert HasAllApplied(s, t, u);
  }
  longer := Extend(run, z, step);
}

function Three(): Config { Config({1, 2, 3}, {}) }
function Four(): Config { Config({1, 2, 3, 4}, {}) }

// The log of the first leader, and what the second one adds.
function Log1(): Log { [Reserve(1, 100), Change(1, Four())] }
function Log2(): Log { Log1() + [Reserve(2, 50)] }

lemma AboutLogs()
  ensures Ceiling(0, []) == 0 && Ceiling(0, Log1()[..1]) == 100 && Ceiling(0, Log1()) == 100 && Ceiling(0, Log2()) == 101
  ensures Changes([]) == 0 && Changes(Log1()[..1]) == 0 && Changes(Log1()) == 1 && Changes(Log2()) == 1
  ensures ConfigAfter(Three(), []) == Three() && ConfigAfter(Three(), Log1()[..1]) == Three()
  ensures ConfigAfter(Three(), Log1()) == Four() && ConfigAfter(Three(), Log2()) == Four()
{
  assert Log1()[..1] == [Reserve(1, 100)] && [Reserve(1, 100)][..0] == [];
  assert Log1()[..2] == Log1();
  assert Log2()[..2] == Log1();
}

lemma AboutQuorums()
  ensures IsQuorum({1, 2}, Three()) && IsQuorum({2, 3}, Three()) && IsQuorum({2, 3, 4}, Four()) && Follows(Three(), Four())
{
  assert {1, 2} * {1, 2, 3} == {1, 2} && {2, 3} * {1, 2, 3} == {2, 3} && {2, 3, 4} * {1, 2, 3, 4} == {2, 3, 4};
  assert Four().voters == Three().voters + {4};
}

lemma SafeWithOne(s: State)
  requires forall t :: t in s.tenures ==> t == 1
  requires 1 in s.tenures ==> ChangesApplied(s.tenures[1]) && forall i :: 0 <= i < |s.tenures[1].log| ==> s.tenures[1].log[i].term == 1
  ensures RaftSafe(s)
{
}

lemma SafeWithTwo(s: State)
  requires forall t :: t in s.tenures <==> t == 1 || t == 2
  requires ChangesApplied(s.tenures[1]) && ChangesApplied(s.tenures[2])
  requires s.tenures[1].log == Log1() && s.tenures[1].applied <= 2
  requires s.tenures[2].born == Log1() && (s.tenures[2].log == Log1() || s.tenures[2].log == Log2())
  ensures RaftSafe(s)
{
  forall u, i | u in s.tenures && 0 <= i < |s.tenures[u].log| ensures ComesFromItsLeader(s, u, i) {
    if i < 2 {
      assert s.tenures[u].log[i] == Log1()[i];
      assert s.tenures[u].log[..i+1] == Log1()[..i+1];
    }
  }
  assert HasAllApplied(s, 1, 2);
}

// Node 1 leads, with a first reservation.
function Leading1(log: Log, applied: nat, next: Timestamp): Tenure
{
  Tenure(1, 2, {1, 2}, [], 0, log, applied, true, 1, Open(next, 100))
}

lemma FirstVotes() returns (run: seq<State>, s: State)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == State(2, Three(), 0, {Vote(1, 1, 1), Vote(2, 1, 1)}, map[], map[], {}, {}, {}, {}, {}, {}, {}, {})
{
  s := State(0, Three(), 0, {}, map[], map[], {}, {}, {}, {}, {}, {}, {}, {});
  SafeWithOne(s);
  run := [s];
  var v := Vote(1, 1, 1);
  var z := s.(now := 1, votes := {v});
  run := ExtendOnly(run, z, StepVote(v));
  s, v := z, Vote(2, 1, 1);
  z := s.(now := 2, votes := s.votes + {v});
  assert z.votes == {Vote(1, 1, 1), Vote(2, 1, 1)};
  run := ExtendOnly(run, z, StepVote(v));
  s := z;
}

lemma FirstElection() returns (run: seq<State>, s: State)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == State(3, Three(), 0, {Vote(1, 1, 1), Vote(2, 1, 1)}, map[1 := Tenure(1, 2, {1, 2}, [], 0, [], 0, true, 0, Closed)],
    map[], {}, {}, {}, {}, {}, {}, {}, {})
{
  run, s := FirstVotes();
  AboutLogs();
  AboutQuorums();
  var t := Tenure(1, 2, {1, 2}, [], 0, [], 0, true, 0, Closed);
  assert t.born[..0] == [];
  var z := s.(now := 3, tenures := map[1 := t]);
  assert z.tenures == s.tenures[1 := t];
  SafeWithOne(z);
  run := Extend(run, z, StepElect(1, t));
  s := z;
}

lemma FirstLeader() returns (run: seq<State>, s: State)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == State(6, Three(), 0, {Vote(1, 1, 1), Vote(2, 1, 1)}, map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 0))],
    map[], {}, {}, {}, {}, {}, {}, {}, {})
{
  run, s := FirstElection();
  AboutLogs();
  var log := Log1()[..1];
  assert log == [] + [Log1()[0]] && log[..1] == log && log[..0] == [] && [][..0] == log[..0];
  var t := Tenure(1, 2, {1, 2}, [], 0, log, 0, true, 0, Closed);
  var z := s.(now := 4, tenures := map[1 := t]);
  assert z.tenures == s.tenures[1 := t];
  SafeWithOne(z);
  run := Extend(run, z, StepAppend(1, Log1()[0]));
  s, t := z, t.(applied := 1, opening := 1);
  z := s.(now := 5, tenures := map[1 := t]);
  assert z.tenures == s.tenures[1 := t];
  SafeWithOne(z);
  run := Extend(run, z, StepApply(1));
  s, t := z, Leading1(log, 1, Timestamp(1, 0));
  z := s.(now := 6, tenures := map[1 := t]);
  assert z.tenures == s.tenures[1 := t];
  SafeWithOne(z);
  assert Floor0(0, s.tenures[1]) == 1 && CeilingNow(s, s.tenures[1]) == 100;
  run := Extend(run, z, StepOpen(1));
  s := z;
}

lemma FirstRound() returns (run: seq<State>, s: State)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == State(9, Three(), 0, {Vote(1, 1, 1), Vote(2, 1, 1)}, map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 0))],
    map[Round(1, 1) := 7], {Ack(Round(1, 1), 2)}, {Request(1, 6)}, {}, {}, {Ack(Round(1, 1), 2)}, {}, {}, {})
{
  run, s := FirstLeader();
  var r, q, ack := Round(1, 1), Request(1, 6), Ack(Round(1, 1), 2);
  var z := s.(now := 7, requests := {q});
  run := ExtendOnly(run, z, StepArrive(1));
  s := z;
  z := s.(now := 8, rounds := map[r := 7]);
  run := ExtendOnly(run, z, StepBeginRound(r));
  s := z;
  z := s.(now := 9, acks := {ack}, promises := {ack});
  run := ExtendOnly(run, z, StepAnswers(ack, true));
  s := z;
}

// It answers a request after a round, and one by a lease.
lemma FirstAnswers() returns (run: seq<State>, s: State, a: Answer)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s.now == 14 && s.genesis == Three() && s.base == 0
  ensures s.tenures == map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 20))]
  ensures s.rounds == map[Round(1, 1) := 7] && s.votes == {Vote(1, 1, 1), Vote(2, 1, 1)}
  ensures s.acks == s.promises == {Ack(Round(1, 1), 2)} && s.kept == {} && s.ended == {} && s.forgone == {}
  ensures a in s.answers && a.request.term == 1 && a.answered == 10
{
  run, s := FirstRound();
  run, s := FirstConfirm(run, s);
  run, s, a := AnswerNext(run, s, Request(1, 6), Timestamp(1, 0), Timestamp(1, 9));
  var b;
  run, s, b := LeaseAnswer(run, s);
}

lemma FirstConfirm(run0: seq<State>, s0: State) returns (run: seq<State>, s: State)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 9 && s0.genesis == Three()
  requires s0.rounds == map[Round(1, 1) := 7] && s0.acks == {Ack(Round(1, 1), 2)} && s0.requests == {Request(1, 6)}
  requires s0.tenures == map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 0))]
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == s0.(now := 10, cleared := s.cleared) && Request(1, 6) in s.cleared
{
  AboutLogs();
  AboutQuorums();
  assert s0.tenures[1].log[..1] == Log1()[..1];
  assert HasConfirmed(s0, Round(1, 1), 1);
  assert Ack(Round(1, 1), 2) in s0.acks;
  assert HasConfirmed(s0, Round(1, 1), 2);
  s := s0.(now := 10, cleared := s0.cleared + (set q | q in s0.requests && q.term == 1 && q.arrived < 7));
  run := ExtendOnly(run0, s, StepConfirm(Round(1, 1), {1, 2}));
}

lemma AnswerNext(run0: seq<State>, s0: State, q: Request, first: Timestamp, last: Timestamp) returns (run: seq<State>, s: State, a: Answer)
  requires IsRun(run0) && s0 == run0[|run0|-1]
  requires s0.tenures.Keys == {1} && s0.tenures[1] == Leading1(Log1()[..1], 1, first)
  requires q in s0.cleared && q.term == 1 && NotAfter(first, last) && last.time < 100
  ensures IsRun(run) && s == run[|run|-1]
  ensures a == Answer(q, s0.now, first, last)
  ensures s == s0.(now := s0.now + 1, answers := s0.answers + {a},
    tenures := map[1 := Leading1(Log1()[..1], 1, Timestamp(last.time, last.index + 1))])
{
  AboutLogs();
  a := Answer(q, s0.now, first, last);
  var next := Timestamp(last.time, last.index + 1);
  s := s0.(now := s0.now + 1, answers := s0.answers + {a}, tenures := s0.tenures[1 := Leading1(Log1()[..1], 1, next)]);
  assert s.tenures[1].born[..0] == [];
  SafeWithOne(s);
  run := Extend(run0, s, StepIssue(q, first, last, next));
}

lemma LeaseAnswer(run0: seq<State>, s0: State) returns (run: seq<State>, s: State, b: Answer)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 11 && s0.genesis == Three()
  requires s0.tenures == map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 10))]
  requires s0.promises == {Ack(Round(1, 1), 2)} && s0.ended == {} && s0.forgone == {}
  ensures IsRun(run) && s == run[|run|-1]
  ensures s.answers == s0.answers + {b}
  ensures s == s0.(now := 14, answers := s.answers, requests := s.requests, cleared := s.cleared,
    tenures := map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 20))])
{
  var q := Request(1, 11);
  s := s0.(now := 12, requests := s0.requests + {q});
  run := ExtendOnly(run0, s, StepArrive(1));
  run, s := LeaseChecked(run, s, q);
  run, s, b := AnswerNext(run, s, q, Timestamp(1, 10), Timestamp(1, 19));
}

lemma LeaseChecked(run0: seq<State>, s0: State, q: Request) returns (run: seq<State>, s: State)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 12 && s0.genesis == Three()
  requires s0.tenures == map[1 := Leading1(Log1()[..1], 1, Timestamp(1, 10))]
  requires s0.promises == {Ack(Round(1, 1), 2)} && s0.ended == {} && s0.forgone == {}
  requires q in s0.requests && q.term == 1
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == s0.(now := 13, cleared := s.cleared) && q in s.cleared
{
  AboutLogs();
  AboutQuorums();
  assert s0.tenures[1].log[..1] == Log1()[..1];
  assert Ack(Round(1, 1), 2) in s0.promises;
  assert StandsBy(s0, 1, 1) && StandsBy(s0, 1, 2);
  s := s0.(now := 13, cleared := s0.cleared + (set p | p in s0.requests && p.term == 1));
  run := ExtendOnly(run0, s, StepCheckLease(1, {1, 2}));
}

// Node 1 adds node 4 as a voter, and applies that.
lemma FourthVoter() returns (run: seq<State>, s: State, a: Answer)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s.now == 16 && s.genesis == Three() && s.base == 0
  ensures s.tenures == map[1 := Leading1(Log1(), 2, Timestamp(1, 20))]
  ensures s.rounds == map[Round(1, 1) := 7] && s.votes == {Vote(1, 1, 1), Vote(2, 1, 1)}
  ensures s.acks == s.promises == {Ack(Round(1, 1), 2)} && s.kept == {} && s.ended == {} && s.forgone == {}
  ensures a in s.answers && a.request.term == 1 && a.answered == 10
{
  run, s, a := FirstAnswers();
  AboutLogs();
  AboutQuorums();
  var t := Leading1(Log1(), 1, Timestamp(1, 20));
  var z := s.(now := 15, tenures := s.tenures[1 := t]);
  assert Log1()[..1] + [Log1()[1]] == Log1();
  assert Log1()[..1][..1] == Log1()[..1];
  assert t.born[..0] == [];
  SafeWithOne(z);
  run := Extend(run, z, StepAppend(1, Log1()[1]));
  s := z;
  t := Leading1(Log1(), 2, Timestamp(1, 20));
  z := s.(now := 16, tenures := s.tenures[1 := t]);
  assert Log1()[..2] == Log1();
  SafeWithOne(z);
  run := Extend(run, z, StepApply(1));
  s := z;
}

// Node 2 leads; node 1 does not know, and goes on. Node 2 was elected by the three, as it had not applied the change.
function Leading2(log: Log, applied: nat, opening: nat, alloc: Allocator): Tenure
{
  Tenure(2, 20, {2, 3}, Log1(), 1, log, applied, true, opening, alloc)
}

lemma SecondLeader() returns (run: seq<State>, s: State, a: Answer)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s.now == 21 && s.genesis == Three() && s.base == 0
  ensures s.tenures == map[1 := Leading1(Log1(), 2, Timestamp(1, 20)), 2 := Leading2(Log1(), 1, 0, Closed)]
  ensures s.rounds == map[Round(1, 1) := 7]
  ensures s.votes == {Vote(1, 1, 1), Vote(2, 1, 1), Vote(2, 2, 2), Vote(3, 2, 2)}
  ensures s.acks == {Ack(Round(1, 1), 2)}
  ensures a in s.answers && a.request.term == 1 && a.answered == 10
{
  run, s, a := FourthVoter();
  AboutLogs();
  AboutQuorums();
  var r, ack := Round(1, 1), Ack(Round(1, 1), 2);
  var z := s.(now := 17, ended := {r});
  run := ExtendOnly(run, z, StepEndLease(r));
  s := z;
  z := s.(now := 18, kept := {ack});
  run := ExtendOnly(run, z, StepKeepPromise(ack));
  s := z;
  var v := Vote(2, 2, 2);
  z := s.(now := 19, votes := s.votes + {v});
  run := ExtendOnly(run, z, StepVote(v));
  s, v := z, Vote(3, 2, 2);
  z := s.(now := 20, votes := s.votes + {v});
  run := ExtendOnly(run, z, StepVote(v));
  s := z;
  var t := Leading2(Log1(), 1, 0, Closed);
  z := s.(now := 21, tenures := s.tenures[2 := t]);
  SafeWithTwo(z);
  run := Extend(run, z, StepElect(2, t));
  s := z;
}

lemma SecondOpens() returns (run: seq<State>, s: State, a: Answer)
  ensures IsRun(run) && s == run[|run|-1]
  ensures s.now == 25 && s.genesis == Three() && s.base == 0
  ensures s.tenures == map[1 := Leading1(Log1(), 2, Timestamp(1, 20)), 2 := Leading2(Log2(), 3, 3, Open(Timestamp(100, 0), 101))]
  ensures s.rounds == map[Round(1, 1) := 7]
  ensures s.votes == {Vote(1, 1, 1), Vote(2, 1, 1), Vote(2, 2, 2), Vote(3, 2, 2)}
  ensures s.acks == {Ack(Round(1, 1), 2)}
  ensures a in s.answers && a.request.term == 1 && a.answered == 10
{
  run, s, a := SecondLeader();
  AboutLogs();
  assert Log1()[..2] == Log1() && Log2()[..2] == Log1() && Log2()[..3] == Log2();
  var t := Leading2(Log2(), 1, 0, Closed);
  var z := s.(now := 22, tenures := s.tenures[2 := t]);
  SafeWithTwo(z);
  run := Extend(run, z, StepAppend(2, Reserve(2, 50)));
  s, t := z, Leading2(Log2(), 2, 0, Closed);
  z := s.(now := 23, tenures := s.tenures[2 := t]);
  SafeWithTwo(z);
  run := Extend(run, z, StepApply(2));
  s, t := z, Leading2(Log2(), 3, 3, Closed);
  z := s.(now := 24, tenures := s.tenures[2 := t]);
  SafeWithTwo(z);
  run := Extend(run, z, StepApply(2));
  s, t := z, Leading2(Log2(), 3, 3, Open(Timestamp(100, 0), 101));
  z := s.(now := 25, tenures := s.tenures[2 := t]);
  SafeWithTwo(z);
  run := Extend(run, z, StepOpen(2));
  s := z;
}

// The second leader answers a request that arrived after the first answer, by a quorum of the four.
lemma RunsExist() returns (run: seq<State>, a: Answer, c: Answer)
  ensures IsRun(run) && a in run[|run|-1].answers && c in run[|run|-1].answers
  ensures a.request.term == 1 && c.request.term == 2 && a.answered < c.request.arrived
{
  var s;
  run, s, a := SecondOpens();
  var r, q := Round(2, 1), Request(2, 25);
  var z := s.(now := 26, requests := s.requests + {q});
  run := ExtendOnly(run, z, StepArrive(2));
  s := z;
  z := s.(now := 27, rounds := s.rounds[r := 26]);
  run := ExtendOnly(run, z, StepBeginRound(r));
  s := z;
  run, s := TwoAnswer(run, s, r);
  run, s := SecondConfirm(run, s, r, q);
  run, s, c := LastAnswer(run, s, q);
}

lemma SecondConfirm(run0: seq<State>, s0: State, r: Round, q: Request) returns (run: seq<State>, s: State)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 29 && s0.genesis == Three()
  requires 2 in s0.tenures && s0.tenures[2] == Leading2(Log2(), 3, 3, Open(Timestamp(100, 0), 101))
  requires r == Round(2, 1) && r in s0.rounds && s0.rounds[r] == 26 && Ack(r, 3) in s0.acks && Ack(r, 4) in s0.acks
  requires q == Request(2, 25) && q in s0.requests
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == s0.(now := 30, cleared := s.cleared) && q in s.cleared
{
  AboutLogs();
  AboutQuorums();
  assert s0.tenures[2].log[..3] == Log2();
  assert Ack(Round(2, 1), 3) in s0.acks && Ack(Round(2, 1), 4) in s0.acks;
  assert HasConfirmed(s0, r, 2) && HasConfirmed(s0, r, 3) && HasConfirmed(s0, r, 4);
  s := s0.(now := 30, cleared := s0.cleared + (set p | p in s0.requests && p.term == 2 && p.arrived < 26));
  run := ExtendOnly(run0, s, StepConfirm(r, {2, 3, 4}));
}

lemma LastAnswer(run0: seq<State>, s0: State, q: Request) returns (run: seq<State>, s: State, c: Answer)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 30 && s0.genesis == Three()
  requires s0.tenures == map[1 := Leading1(Log1(), 2, Timestamp(1, 20)), 2 := Leading2(Log2(), 3, 3, Open(Timestamp(100, 0), 101))]
  requires q in s0.cleared && q.term == 2
  ensures IsRun(run) && s == run[|run|-1]
  ensures c.request == q && s.answers == s0.answers + {c}
{
  AboutLogs();
  c := Answer(q, 30, Timestamp(100, 0), Timestamp(100, 0));
  var t := Leading2(Log2(), 3, 3, Open(Timestamp(100, 1), 101));
  s := s0.(now := 31, tenures := s0.tenures[2 := t], answers := s0.answers + {c});
  SafeWithTwo(s);
  run := Extend(run0, s, StepIssue(q, Timestamp(100, 0), Timestamp(100, 0), Timestamp(100, 1)));
}

lemma TwoAnswer(run0: seq<State>, s0: State, r: Round) returns (run: seq<State>, s: State)
  requires IsRun(run0) && s0 == run0[|run0|-1] && s0.now == 27
  requires r == Round(2, 1) && r in s0.rounds
  requires s0.votes == {Vote(1, 1, 1), Vote(2, 1, 1), Vote(2, 2, 2), Vote(3, 2, 2)}
  ensures IsRun(run) && s == run[|run|-1]
  ensures s == s0.(now := 29, acks := s0.acks + {Ack(r, 3), Ack(r, 4)})
{
  s, run := s0, run0;
  var z := s.(now := 28, acks := s.acks + {Ack(r, 3)});
  run := ExtendOnly(run, z, StepAnswers(Ack(r, 3), false));
  s := z;
  z := s.(now := 29, acks := s.acks + {Ack(r, 4)});
  run := ExtendOnly(run, z, StepAnswers(Ack(r, 4), false));
  s := z;
  assert s.acks == s0.acks + {Ack(r, 3), Ack(r, 4)};
}
