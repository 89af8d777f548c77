// I4, the heart: if a quorum has confirmed a round of a leader, no later leader was elected before that round began.

include "invariant.dfy"
include "quorums.dfy"

// The log that a later leader u found has all that the leader of term has applied (leader completeness), which includes
// an entry of term itself: the reservation (I2). So its last entry is of term or later.
lemma LaterLogEndsLater(s: State, term: Term, u: Term) returns (last: Term)
  requires LogMatching(s) && LeaderCompleteness(s) && TenuresOk(s) && BornLater(s)
  requires term in s.tenures && u in s.tenures && term < u && s.tenures[term].opening > 0
  ensures s.tenures[term].applied <= |s.tenures[u].born| && s.tenures[u].born != []
  ensures last == s.tenures[u].born[|s.tenures[u].born|-1].term
  ensures term <= last < u && last in s.tenures && s.tenures[last].elected < s.tenures[u].elected
  ensures IsPrefix(s.tenures[u].born, s.tenures[last].log)
{
  var t, later := s.tenures[term], s.tenures[u];
  assert TenureOk(s, term, t) && TenureOk(s, u, later);
  var end := |later.born|;
  assert HasAllApplied(s, term, u);
  assert later.born[t.opening-1] == t.log[..t.applied][t.opening-1] == t.log[t.opening-1];
  last := later.born[end-1].term;
  assert later.log[end-1] == later.born[end-1];
  assert later.log[t.opening-1] == later.born[t.opening-1];
  assert ComesFromItsLeader(s, u, end-1) && MakerIsEarlier(s, u, end-1);
}

// If the later leader's log is a beginning of this leader's log, then the configuration that elected it is the one of
// this leader, the one before, or the one after: each of both has applied all changes in its log but one. So the quorum that
// elected it and the one that confirms a round have a voter in common.
lemma SomeVoterDidBoth(s: State, term: Term, u: Term, quorum: set<Node>) returns (v: Node)
  requires TenuresOk(s) && ElectionsOk(s)
  requires term in s.tenures && u in s.tenures
  requires s.tenures[term].applied <= |s.tenures[u].born| && IsPrefix(s.tenures[u].born, s.tenures[term].log)
  requires s.tenures[term].applied <= |s.tenures[term].log| && IsQuorum(quorum, ConfigNow(s, s.tenures[term]))
  ensures v in quorum && v in s.tenures[u].voters
{
  var t, later := s.tenures[term], s.tenures[u];
  assert TenureOk(s, term, t) && TenureOk(s, u, later) && ElectionOk(s, u, later);
  var log, mine, its, end := t.log, t.applied, later.bornApplied, |later.born|;
  assert later.born == log[..end];
  PrefixOfPrefix(log, its, end);
  assert log[..|log|] == log;
  ChangesGrow(log, mine, end);
  ChangesGrow(log, end, |log|);
  ChangesGrow(log, its, end);
  if mine <= its {
    OneChangeBetween(s.genesis, log, mine, its);
    v := QuorumsMeet(ConfigNow(s, t), ConfigBorn(s, later), quorum, later.voters);
  } else {
    OneChangeBetween(s.genesis, log, its, mine);
    v := QuorumsMeet(ConfigBorn(s, later), ConfigNow(s, t), later.voters, quorum);
  }
}

// A voter that has confirmed a round had not elected a later leader before the round began. Code: answerRound, answeredByQuorum.
lemma ConfirmedMeansNotElected(s: State, r: Round, u: Term, v: Node)
  requires ElectionsOk(s) && RoundsOk(s) && AcksOk(s)
  requires r in s.rounds && r.term in s.tenures && s.tenures[r.term].active && u in s.tenures && r.term < u
  requires HasConfirmed(s, r, v) && v in s.tenures[u].voters
  ensures s.rounds[r] <= s.tenures[u].elected
{
  assert ElectionOk(s, u, s.tenures[u]) && ElectionOk(s, r.term, s.tenures[r.term]);
  if v == s.tenures[r.term].node {
    assert Vote(v, u, s.tenures[u].node) in s.votes;
    assert false; // it has stepped down
  } else {
    var n :| n >= r.number && Ack(Round(r.term, n), v) in s.acks;
    var a := Ack(Round(r.term, n), v);
    assert a.round in s.rounds;
    assert n == r.number ==> a.round == r;
  }
}

// I4. By induction over the terms in between: take the first later leader. Its log ends with the term of this one, so the
// quorums meet, in a voter that elected it after it had answered the round.
lemma NoLaterLeader(s: State, r: Round, quorum: set<Node>, u: Term)
  requires RaftSafe(s) && Inv(s)
  requires r in s.rounds && r.term in s.tenures && s.tenures[r.term].active
  requires s.tenures[r.term].applied <= |s.tenures[r.term].log|
  requires IsQuorum(quorum, ConfigNow(s, s.tenures[r.term]))
  requires forall v :: v in quorum ==> HasConfirmed(s, r, v)
  requires u in s.tenures && r.term < u
  ensures s.rounds[r] <= s.tenures[u].elected
  decreases u
{
  var last := LaterLogEndsLater(s, r.term, u);
  if last > r.term {
    NoLaterLeader(s, r, quorum, last);
  } else {
    var v := SomeVoterDidBoth(s, r.term, u, quorum);
    ConfirmedMeansNotElected(s, r, u, v);
  }
}

// I5. While a leader has a lease, no later term has a leader. As above, but the common voter has broken its promise, or the term
// came by a transfer: then the leader before it had forgone its lease, and is this one, or later itself.
lemma NoLeaderBesideLease(s: State, term: Term, quorum: set<Node>, u: Term)
  requires RaftSafe(s) && Inv(s)
  requires term in s.tenures && s.tenures[term].active && s.tenures[term].opening > 0
  requires s.tenures[term].applied <= |s.tenures[term].log|
  requires IsQuorum(quorum, ConfigNow(s, s.tenures[term]))
  requires forall v :: v in quorum ==> StandsBy(s, term, v)
  requires term !in s.forgone
  requires u in s.tenures && term < u
  ensures false
  decreases u
{
  var last := LaterLogEndsLater(s, term, u);
  if last > term {
    NoLeaderBesideLease(s, term, quorum, last);
  } else {
    var v := SomeVoterDidBoth(s, term, u, quorum);
    PromiseIsBroken(s, term, u, v);
    if u - 1 > term {
      NoLeaderBesideLease(s, term, quorum, u - 1);
    }
  }
}

lemma PromiseIsBroken(s: State, term: Term, u: Term, v: Node)
  requires ElectionsOk(s) && PromisesOk(s)
  requires term in s.tenures && s.tenures[term].active && u in s.tenures && term < u
  requires StandsBy(s, term, v) && v in s.tenures[u].voters
  ensures u - 1 in s.forgone && u - 1 in s.tenures
{
  assert ElectionOk(s, u, s.tenures[u]) && ElectionOk(s, term, s.tenures[term]);
  assert Vote(v, u, s.tenures[u].node) in s.votes;
}
