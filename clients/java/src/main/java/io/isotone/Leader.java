package io.isotone;

import io.isotone.IsotoneException.Code;
import io.isotone.Resp.View;
import java.io.IOException;
import java.util.List;

/** Has the leader carry out commands for workers, each attempt on a connection of its own. */
final class Leader {
  private static final int MOVES_MAX = 3;

  /** Reads an answer; what throws an IOException is no answer, and the command is repeated. */
  interface Answer<T> {
    T of(Object value) throws IOException;
  }

  private final Core core;
  private final long deadline;
  private final Code last;
  private IsotoneException quota;

  /** Attempts go on until the deadline, or a refusal with the code last, which may be null. */
  Leader(Core core, long deadline, Code last) {
    this.core = core;
    this.deadline = deadline;
    this.last = last;
  }

  /** Carries out an idempotent command on the calling thread. */
  <T> T execute(Answer<T> answer, String... command) {
    String addr = "";
    int moves = 0;
    for (int failures = 0; ; failures++) {
      addr = addr.isEmpty() ? nextAddr(failures) : addr;
      try {
        return attempt(addr, answer, command);
      } catch (IsotoneException e) {
        boolean again = e.passes() || e.code() == Code.WRONG_CLUSTER;
        if (!again || e.code() == last || core.isClosed()) {
          throw core.isClosed() ? Core.closed() : e;
        }
        core.trouble.note(addr, e);
        quota = e.code() == Code.QUOTA_EXCEEDED ? e : null;
        addr = moves < MOVES_MAX ? e.leader : "";
      } catch (IOException e) {
        core.trouble.note(addr, e);
        quota = null;
        addr = "";
      }
      moves = addr.isEmpty() ? 0 : moves + 1;
      if (addr.isEmpty()) {
        pause(failures);
      }
    }
  }

  private <T> T attempt(String addr, Answer<T> answer, String... command) throws IOException {
    Wire wire;
    try {
      wire = Wire.open(core, deadline, addr, "PING");
    } catch (IOException | IsotoneException e) {
      report(addr, e);
      throw e;
    }
    try {
      report(addr, null);
      wire.ask(core);
      return answer.of(wire.ask(core, command));
    } finally {
      wire.close();
    }
  }

  private void report(String addr, Exception why) {
    if (core.now() < deadline) { // the end of the call says nothing about the node
      core.post(router -> router.reported(addr, why));
    }
  }

  private void pause(int failures) {
    long pause = quota == null
        ? Pauses.after(failures, Pauses.RETRY, Pauses.RANDOM)
        : Pauses.quota(quota.retryAfter, failures, Pauses.RANDOM);
    try {
      core.closing.await(Math.min(pause, deadline - core.now()), java.util.concurrent.TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    if (core.isClosed()) {
      throw Core.closed();
    } else if (Thread.currentThread().isInterrupted()) {
      throw new IsotoneException(Code.CANCELED, "the caller was interrupted");
    } else if (core.now() >= deadline) {
      throw core.overdue(quota);
    }
  }

  /** Returns the node to ask after that many failures: first the last known leader, then every member in turn. */
  private String nextAddr(int failures) {
    View seen = core.seen;
    List<String> members = List.copyOf(seen.members());
    boolean leader = !seen.leader().isEmpty() && failures % (members.size() + 1) == 0;
    return leader ? seen.leader() : members.get(failures % members.size());
  }
}
