// What the beginning of a log says about the whole.

include "types.dfy"

lemma PrefixOfPrefix(log: Log, x: nat, y: nat)
  requires x <= y <= |log|
  ensures log[..y][..x] == log[..x]
{
}

// The ceiling never sinks (I1): oracle.State.Apply.
lemma CeilingGrows(base: nat, log: Log, x: nat, y: nat)
  requires x <= y <= |log|
  ensures Ceiling(base, log[..x]) <= Ceiling(base, log[..y])
  decreases y
{
  if x < y {
    PrefixOfPrefix(log, y - 1, y);
    CeilingGrows(base, log, x, y - 1);
  }
}

lemma ChangesGrow(log: Log, x: nat, y: nat)
  requires x <= y <= |log|
  ensures Changes(log[..x]) <= Changes(log[..y])
  decreases y
{
  if x < y {
    PrefixOfPrefix(log, y - 1, y);
    ChangesGrow(log, x, y - 1);
  }
}

// Each change in the log may follow the configuration before it.
predicate LegalChanges(genesis: Config, log: Log)
{
  forall i :: 0 <= i < |log| && log[i].Change? ==> Follows(ConfigAfter(genesis, log[..i]), log[i].config)
}

lemma NoChangeBetween(genesis: Config, log: Log, x: nat, y: nat)
  requires x <= y <= |log| && Changes(log[..y]) == Changes(log[..x])
  ensures ConfigAfter(genesis, log[..y]) == ConfigAfter(genesis, log[..x])
  decreases y
{
  if x < y {
    PrefixOfPrefix(log, y - 1, y);
    ChangesGrow(log, x, y - 1);
    NoChangeBetween(genesis, log, x, y - 1);
  }
}

// Two places of a log with at most one change between them have configurations of which one may follow the other.
lemma OneChangeBetween(genesis: Config, log: Log, x: nat, y: nat)
  requires x <= y <= |log| && LegalChanges(genesis, log)
  requires Changes(log[..y]) <= Changes(log[..x]) + 1
  ensures Follows(ConfigAfter(genesis, log[..x]), ConfigAfter(genesis, log[..y]))
  decreases y
{
  if x < y {
    PrefixOfPrefix(log, y - 1, y);
    ChangesGrow(log, x, y - 1);
    if log[y-1].Change? {
      NoChangeBetween(genesis, log, x, y - 1);
    } else {
      OneChangeBetween(genesis, log, x, y - 1);
    }
  }
}

lemma LegalPrefix(genesis: Config, log: Log, x: nat)
  requires x <= |log| && LegalChanges(genesis, log)
  ensures LegalChanges(genesis, log[..x])
{
  forall i | 0 <= i < x && log[..x][i].Change?
    ensures Follows(ConfigAfter(genesis, log[..x][..i]), log[..x][i].config)
  {
    PrefixOfPrefix(log, i, x);
  }
}
