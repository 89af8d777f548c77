package io.isotone;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongUnaryOperator;

/** How long to wait: pauses after failures, and when an answer is late. All times are nanoseconds. */
final class Pauses {
  static final long MS = TimeUnit.MILLISECONDS.toNanos(1);

  /** The shortest pause, before jitter: an election may take a few milliseconds only. */
  static final long MIN = MS;

  /** The longest one, before jitter, after a refusal or a failed dial. */
  static final long RETRY = 100 * MS;

  /** The same between questions for the leader, for the first {@link #EAGER_FOR} of a search. */
  static final long EAGER = 8 * MS;

  static final long EAGER_FOR = 1000 * MS;

  /** The same for a node that refuses the client. */
  static final long REFUSED = 1000 * MS;

  /** The same for a member that is not needed, because others give IDs. */
  static final long SPARE = 2000 * MS;

  /** The longest pause for a quota. */
  static final long QUOTA = 10_000 * MS;

  static final LongUnaryOperator RANDOM = below -> ThreadLocalRandom.current().nextLong(below);

  private Pauses() {}

  /** Returns the pause after that many failures in a row: random is given a bound, and draws below it. */
  static long after(int failures, long most, LongUnaryOperator random) {
    long pause = Math.min(MIN << Math.min(failures, 16), most);
    return pause / 2 + random.applyAsLong(pause);
  }

  /** Returns the pause after that many refusals in a row because of a quota. */
  static long quota(long retryAfterMs, int failures, LongUnaryOperator random) {
    long pause = Math.min(retryAfterMs * MS, QUOTA);
    return pause <= 0 ? after(failures, REFUSED, random) : pause + random.applyAsLong(pause / 8 + 1);
  }

  /** When an answer is late, by a smoothed mean and deviation of earlier ones (RFC 6298). */
  static final class Estimate {
    private static final long TIMEOUT_MIN = 25 * MS;
    private static final long TIMEOUT_MAX = 5000 * MS;
    private static final long TIMEOUT_FIRST = 250 * MS;
    private long mean;
    private long deviation;

    synchronized void add(long took) {
      if (mean == 0) {
        mean = Math.max(took, 1);
        deviation = took / 2;
        return;
      }
      deviation += (Math.abs(mean - took) - deviation) / 4;
      mean -= (mean - took) / 8;
    }

    /** Doubles the timeout: a connection that was given up may only have been slow. */
    synchronized void giveUp() {
      long timeout = Math.min(2 * timeout(), TIMEOUT_MAX);
      mean = Math.max(mean, 1);
      deviation = (timeout - mean) / 4;
    }

    synchronized long timeout() {
      return mean == 0 ? TIMEOUT_FIRST : Math.min(Math.max(mean + 4 * deviation, TIMEOUT_MIN), TIMEOUT_MAX);
    }
  }
}
