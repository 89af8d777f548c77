// Quorums of two configurations meet if one follows the other. This, and not that all quorums meet, is what a
// change of membership keeps.

include "types.dfy"

lemma SizeOfPart(a: set<Node>, b: set<Node>)
  requires a <= b
  ensures |a| <= |b|
  decreases b
{
  if a != {} {
    var x :| x in a;
    SizeOfPart(a - {x}, b - {x});
  }
}

lemma SizeOfUnion(a: set<Node>, b: set<Node>)
  requires a !! b
  ensures |a + b| == |a| + |b|
{
}

// Two majorities, of a set and of the same set with one more.
lemma MajoritiesMeet(q: set<Node>, p: set<Node>, small: set<Node>, large: set<Node>, n: Node)
  requires large == small || large == small + {n}
  requires IsMajority(q, small) && IsMajority(p, large)
  ensures exists m :: m in q && m in p
{
  if forall m :: m in q ==> m !in p {
    var a, b := q * small, p * large;
    SizeOfUnion(a, b);
    SizeOfPart(a + b, large);
    assert |large| <= |small| + 1;
    assert false;
  }
}

// For I4 and I5: confirmRounds in ask.go, and Raft's votes.
lemma QuorumsMeet(a: Config, b: Config, q: set<Node>, p: set<Node>) returns (n: Node)
  requires Follows(a, b) && IsQuorum(q, a) && IsQuorum(p, b)
  ensures n in q && n in p
{
  if b == a || (a.outgoing != {} && b.outgoing == {}) {
    MajoritiesMeet(q, p, a.voters, b.voters, 0);
  } else if b.outgoing == a.voters && a.outgoing == {} && b.outgoing != {} {
    MajoritiesMeet(q, p, a.voters, b.outgoing, 0);
  } else if b.outgoing == a.voters && a.outgoing == {} {
    assert q * a.voters == {};
  } else {
    n :| b.voters == a.voters + {n} || b.voters == a.voters - {n};
    if b.voters == a.voters + {n} {
      MajoritiesMeet(q, p, a.voters, b.voters, n);
    } else if n in a.voters {
      assert a.voters == b.voters + {n};
      MajoritiesMeet(p, q, b.voters, a.voters, n);
    } else {
      MajoritiesMeet(q, p, a.voters, b.voters, n);
    }
  }
  n :| n in q && n in p;
}
