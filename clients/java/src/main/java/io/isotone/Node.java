package io.isotone;

import io.isotone.Pool.Use;
import java.util.ArrayList;
import java.util.List;

/** What a client knows of an address. It belongs to the {@link Router}; {@link Search} decides by it. */
final class Node {
  /** That of the latest exchange: OURS may also be a node that does not report its cluster. */
  enum Outcome { UNREACHABLE, OURS, FOREIGN, REFUSES }

  final String addr;
  Outcome outcome = Outcome.UNREACHABLE;

  /** The error with FOREIGN and REFUSES. */
  IsotoneException why;

  /** A question for the leader is under way. */
  boolean asking;

  /** Refusals of this client in a row, and when the node is asked again after one. */
  int refusals;

  long askAfter;

  /** How long only the node's own word makes it the leader again that it was. */
  long leftUntil;

  /** Dials for each use: failures in a row, when the next one may be, and how many are under way. */
  final int[] failures = new int[Use.values().length];

  final long[] dialAfter = new long[Use.values().length];
  final int[] dialing = new int[Use.values().length];

  /** The open connections, and one for questions that is kept while the search lasts. */
  final List<Connection> connections = new ArrayList<>();

  Wire inquiry;

  Node(String addr) {
    this.addr = addr;
  }

  long connections(Use use) {
    return connections.stream().filter(cn -> cn.pool().use == use).count();
  }

  boolean isUsed() {
    return asking || !connections.isEmpty() || java.util.Arrays.stream(dialing).sum() > 0;
  }

  void hangUp() {
    if (inquiry != null) {
      inquiry.close();
      inquiry = null;
    }
  }
}
