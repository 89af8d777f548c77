// Timelines (I15): the rounds of an owner, without leader or term. Only the lemma about rounds is proved, not a state machine
// around it. Code: owner.go, fence.go; docs/decisions/0040-timelines.md.

include "logs.dfy"
include "quorums.dfy"

// An owner answers once a quorum of its configuration has told fences that it has applied. Then it has applied every fence entry,
// such as a grant to another owner or a change of membership, that was committed when the round began.
//
// Suppose not, and let the entry at place x (counted from 1) be the first that it lacks. Its leader had applied fewer entries than x, and all
// changes of membership up to x but one, when holders, a quorum of its configuration, made x committed (ChangesApplied, and Append
// in steps.dfy). Each holder had x on disk before it told its fence, which is therefore x or higher.
lemma OwnerHasAppliedEveryFence(genesis: Config, log: Log, isFence: Entry -> bool,
  applied: nat, quorum: set<Node>, fences: map<Node, nat>, x: nat, leaderApplied: nat, holders: set<Node>)
  requires LegalChanges(genesis, log) && leaderApplied < x <= |log| && applied < x
  requires forall i :: 0 <= i < |log| && log[i].Change? ==> isFence(log[i])
  // the round
  requires IsQuorum(quorum, ConfigAfter(genesis, log[..applied]))
  requires forall v :: v in quorum ==> v in fences && fences[v] <= applied
  // the entry
  requires isFence(log[x-1]) && forall i :: applied <= i < x - 1 ==> !isFence(log[i])
  requires Changes(log[..x]) <= Changes(log[..leaderApplied]) + 1
  requires IsQuorum(holders, ConfigAfter(genesis, log[..leaderApplied]))
  requires forall v :: v in holders && v in fences ==> fences[v] >= x
  ensures false
{
  NoFenceNoChange(log, isFence, applied, x - 1);
  var v := SomeVoterHasIt(genesis, log, applied, quorum, x, leaderApplied, holders);
}

// No change of membership lies between what the owner has applied and x, so the two configurations are the same or neighbours.
lemma SomeVoterHasIt(genesis: Config, log: Log, applied: nat, quorum: set<Node>, x: nat, leaderApplied: nat, holders: set<Node>) returns (v: Node)
  requires LegalChanges(genesis, log) && leaderApplied < x <= |log| && applied < x
  requires Changes(log[..x-1]) == Changes(log[..applied])
  requires Changes(log[..x]) <= Changes(log[..leaderApplied]) + 1
  requires IsQuorum(quorum, ConfigAfter(genesis, log[..applied]))
  requires IsQuorum(holders, ConfigAfter(genesis, log[..leaderApplied]))
  ensures v in quorum && v in holders
{
  ChangesGrow(log, x - 1, x);
  ChangesGrow(log, leaderApplied, x - 1);
  if applied <= leaderApplied {
    ChangesGrow(log, applied, leaderApplied);
    OneChangeBetween(genesis, log, applied, leaderApplied);
    v := QuorumsMeet(ConfigAfter(genesis, log[..applied]), ConfigAfter(genesis, log[..leaderApplied]), quorum, holders);
  } else {
    OneChangeBetween(genesis, log, leaderApplied, applied);
    v := QuorumsMeet(ConfigAfter(genesis, log[..leaderApplied]), ConfigAfter(genesis, log[..applied]), holders, quorum);
  }
}

lemma NoFenceNoChange(log: Log, isFence: Entry -> bool, x: nat, y: nat)
  requires x <= y <= |log|
  requires forall i :: 0 <= i < |log| && log[i].Change? ==> isFence(log[i])
  requires forall i :: x <= i < y ==> !isFence(log[i])
  ensures Changes(log[..y]) == Changes(log[..x])
  decreases y
{
  if x < y {
    PrefixOfPrefix(log, y - 1, y);
    NoFenceNoChange(log, isFence, x, y - 1);
  }
}
