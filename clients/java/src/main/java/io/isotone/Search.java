package io.isotone;

import io.isotone.Node.Outcome;
import io.isotone.Pool.Use;
import io.isotone.Resp.View;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.LongUnaryOperator;

/**
 * Decides what a client does to find the leader. It opens no connection and reads no clock: it is told what happened
 * and when. It is not safe for concurrent use.
 *
 * <p>A search begins when the leader has failed, refused or been silent. It asks all members at once, and again after
 * pauses. A node that says that it leads is followed at once; one that names another leader may not have noticed yet
 * that this leader is down.
 */
final class Search {
  private static final int MEMBERS_MAX = 64;
  private static final int MOVES_MAX = 3;
  private static final long REFRESH = 10_000 * Pauses.MS;
  private static final int STAMPS = Use.STAMPS.ordinal();

  final Map<String, Node> nodes = new TreeMap<>();
  private final List<String> given;
  private final LongUnaryOperator random;
  private Set<String> members = Set.of();

  /** The last known leader, or "". */
  String leader = "";

  /** The leader has failed, refused or been silent, so all members are asked. */
  boolean suspected = true;

  /** There was no connection to the leader yet. */
  boolean connecting;

  private long asked;
  private long askAfter;
  private long begun;
  private int rounds;
  private int moves;

  Search(List<String> given, LongUnaryOperator random) {
    this.given = given;
    this.random = random;
  }

  Node node(String addr) {
    return nodes.computeIfAbsent(addr, Node::new);
  }

  /** Returns all addresses that may be those of nodes. */
  Set<String> known() {
    Set<String> known = new TreeSet<>(members);
    known.addAll(given);
    if (!leader.isEmpty()) {
      known.add(leader);
    }
    return known;
  }

  /** Returns the members, or all known addresses while they are unknown. */
  Set<String> members() {
    return members.isEmpty() ? known() : members;
  }

  /** Returns the nodes to ask now for the leader: each is being asked then. */
  List<Node> ask(long now) {
    List<Node> due = new ArrayList<>();
    if (askWait(now) != 0) {
      return due;
    }
    if (rounds == 0) {
      begun = now;
    }
    for (String addr : known()) {
      if (question(addr, now)) {
        due.add(node(addr));
      }
    }
    asked = now;
    askAfter = now + Pauses.after(rounds++, pauseMax(now), random);
    return due;
  }

  /** Returns the wait until the next questions; NEVER if nobody is searched for. */
  long askWait(long now) {
    return suspected ? Math.max(askAfter - now, 0) : Call.NEVER;
  }

  /** Reports whether an active client is to ask the leader for the members, though all is well. */
  boolean refresh(long now) {
    boolean due = !suspected && !leader.isEmpty() && now - asked > REFRESH;
    asked = due ? now : asked;
    return due;
  }

  /** Reports whether to ask a node, and notes that it is being asked. */
  boolean question(String addr, long now) {
    Node n = node(addr);
    boolean due = !n.asking && now >= n.askAfter;
    n.asking |= due;
    return due;
  }

  /** Handles the outcome of any exchange. A node that refuses this client is asked less and less often. */
  void reported(Node n, Outcome outcome, long now) {
    if (outcome == Outcome.REFUSES && now >= n.askAfter) {
      n.askAfter = now + Pauses.after(n.refusals++, Pauses.REFUSED, random);
    } else if (outcome == Outcome.OURS) {
      if (n.outcome == Outcome.UNREACHABLE) {
        n.dialAfter[STAMPS] = 0; // it is reached again
      }
      n.refusals = 0;
      n.askAfter = 0;
    }
    n.outcome = outcome;
  }

  /** Handles what a node reports. Reports whether there is another leader now. */
  boolean heard(String addr, View view, long now) {
    learn(addr, view);
    boolean follows = !view.leader().equals(leader) && suspected && accepts(addr, view.leader(), now);
    if (follows) {
      follow(view.leader(), now);
    }
    return follows;
  }

  /** The members that the leader reports while it serves are all there are. What others report is added. */
  private void learn(String addr, View view) {
    Set<String> list = new TreeSet<>(view.members());
    if (!addr.equals(view.leader()) || !addr.equals(leader) || suspected) {
      list.addAll(members);
    }
    members = list.size() > MEMBERS_MAX ? view.members() : list;
  }

  /** The word of others counts neither against a leader that is being connected to, nor for one that has failed. */
  private boolean accepts(String addr, String named, long now) {
    if (leader.isEmpty() || addr.equals(named)) {
      return true;
    }
    Node n = node(named);
    boolean busy = connecting && now >= node(leader).dialAfter[STAMPS];
    return !busy && now >= n.dialAfter[STAMPS] && now >= n.leftUntil;
  }

  private void follow(String addr, long now) {
    if (!leader.isEmpty() && suspected) {
      node(leader).leftUntil = now + Pauses.RETRY;
    }
    leader = addr;
    connecting = true;
  }

  /** A node redirects to another leader. Reports whether to follow: only the word of the present leader counts. */
  boolean moved(String from, String to, long now) {
    if (!from.equals(leader) || to.equals(from)) {
      return false;
    }
    Node n = node(to);
    n.leftUntil = 0;
    n.dialAfter[STAMPS] = ++moves > MOVES_MAX ? now + Pauses.after(moves - MOVES_MAX, Pauses.RETRY, random) : 0;
    follow(to, now);
    return true;
  }

  /** There is a connection to the leader. Reports whether it is the first one. */
  boolean connected() {
    boolean isNew = connecting;
    suspected = false;
    connecting = false;
    return isNew;
  }

  /** A node has answered a request, after a suspicion. */
  void recovered(String addr) {
    if (addr.equals(leader)) {
      suspected = false;
      rounds = 0;
      moves = 0;
      askAfter = asked + Pauses.MIN;
      node(addr).failures[STAMPS] = 0;
    }
  }

  /** Bounds the pauses of the search. */
  long pauseMax(long now) {
    return suspected && now - begun < Pauses.EAGER_FOR ? Pauses.EAGER : Pauses.RETRY;
  }

  /** An address cannot be reached, or its connections are unusable. */
  void failed(Node n, Use use, long most, long now) {
    int u = use.ordinal();
    if (now >= n.dialAfter[u]) { // concurrent attempts count once
      long limit = n.outcome == Outcome.REFUSES ? Pauses.REFUSED : most;
      n.dialAfter[u] = now + Pauses.after(n.failures[u]++, limit, random);
    }
  }

  /** Shortens the pauses of all members: now every one is needed. */
  void hurry(Use use, long now) {
    int u = use.ordinal();
    for (Node n : nodes.values()) {
      n.failures[u] = Math.min(n.failures[u], 1);
      n.dialAfter[u] = now + Pauses.after(n.failures[u], Pauses.RETRY, random);
    }
  }
}
