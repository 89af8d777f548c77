// What is assumed. This is the only file with assumptions; everything else is proved.
//
// RaftSafe is required of every state of a run. ElectionSafety and ClocksAreRight are premises of a step each.
// All but the last are promises of Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", 2014, figure 3; Ongaro,
// "Consensus: Bridging Theory and Practice", 2014, chapter 4), which go.etcd.io/raft keeps for us.
// The last is needed for lease mode only.

include "types.dfy"

// Election safety: a term has at most one leadership.
//
// That is a little more than "at most one leader": one node must not lead twice in a term either, since its second
// allocator would begin where the first one did. Raft's library alone does not promise that where the disk is
// written beside it; votes of others count only once the own vote is durable (campaign.go, decision 2).
predicate ElectionSafety(s: State, term: Term) { term !in s.tenures }

// Log matching, with its two supports: only the leader of a term makes entries of it, and it never drops one of them.
// So each log agrees, up to any entry, with the log of the leader that made that entry.
predicate LogMatching(s: State)
{
  forall u, i {:trigger ComesFromItsLeader(s, u, i)} :: u in s.tenures && 0 <= i < |s.tenures[u].log| ==> ComesFromItsLeader(s, u, i)
}

predicate ComesFromItsLeader(s: State, u: Term, i: int)
  requires u in s.tenures && 0 <= i < |s.tenures[u].log|
{
  var log := s.tenures[u].log;
  var t := log[i].term;
  t in s.tenures && i < |s.tenures[t].log| && log[..i+1] == s.tenures[t].log[..i+1]
}

// Leader completeness: what was committed by the end of a term is in the log of every leader of a later term. What a
// leader has applied is committed in its term or before, whenever it learned of it.
predicate LeaderCompleteness(s: State)
{
  forall t, u {:trigger HasAllApplied(s, t, u)} :: t in s.tenures && u in s.tenures && t < u ==> HasAllApplied(s, t, u)
}

// The later leader u was elected with all that the leader of t has applied until now.
predicate HasAllApplied(s: State, t: Term, u: Term)
  requires t in s.tenures && u in s.tenures
{
  s.tenures[t].applied <= |s.tenures[t].log| && IsPrefix(s.tenures[t].log[..s.tenures[t].applied], s.tenures[u].born)
}

// A node that is elected has applied all changes of membership in its log but at most the last one. A change is
// proposed when the one before it is applied. Every message with the later entry says that the earlier one is committed,
// a node has on disk what it was told together with the entry, and does not campaign before it has applied
// every change that it knows to be committed (hup and pendingConfIndex in Raft's library; lengthenAppends and journal.Write here).
predicate ChangesApplied(t: Tenure)
{
  t.bornApplied <= |t.born| && Changes(t.born) <= Changes(t.born[..t.bornApplied]) + 1
}

predicate RaftSafe(s: State)
{
  LogMatching(s) && LeaderCompleteness(s) && forall t :: t in s.tenures ==> ChangesApplied(s.tenures[t])
}

// Clocks, for lease mode (I5): when the ticks of a voter's promise have passed, every lease that rests on it has ended by the
// clock of its leader. The lease counts from when the round was sent, the promise from when it arrived. clocks.dfy proves this
// from what docs/correctness.md assumes of clocks: that each is off in rate by at most 10 %.
predicate ClocksAreRight(s: State, promise: Ack) { promise.round in s.ended }
