package io.isotone;

import io.isotone.IdSource.Refusal;
import io.isotone.IsotoneException.Code;
import io.isotone.Resp.Grant;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Makes IDs in this process: the cluster leases it a worker, and it renews the lease. IDs are unique even if clocks are
 * wrong, because two leases of one worker never share a millisecond. It is safe for concurrent use.
 */
public final class Generator implements AutoCloseable {
  private static final SecureRandom RANDOM = new SecureRandom();

  /** How long {@link #close} tries to return the lease. */
  private static final long RELEASE = 1000 * Pauses.MS;

  /** How soon a call that waits for the clock looks at it again. */
  private static final long POLL = 10 * Pauses.MS;

  private final Core core;
  private final Options options;
  private final Duration timeout;
  private final long third;
  private volatile IdSource source;

  /** Identifies this generator to the cluster, and the one in which the source was granted. Guarded, as all below. */
  private String session = newSession();

  private String granted = "";
  private IdSource behind;
  private IsotoneException why;
  private Thread keeper;
  private boolean closed;

  /** The options of a generator. Methods return the same object, for chains. */
  public static final class Options {
    private Duration lease = Duration.ofSeconds(30);
    private Duration aheadMax = Duration.ofSeconds(1);
    private LongSupplier clock = System::currentTimeMillis;
    private int worker = -1;

    /**
     * Sets the length of leases, 100 ms to 1 h: a process that was killed blocks its worker for so long, and IDs are
     * made for at least two thirds of it while no node can be reached. Default: 30 s.
     */
    public Options lease(Duration length) {
      lease = length;
      return this;
    }

    /** Wants this worker and no other one. The lowest quarter of the workers is for nodes. */
    public Options worker(int fixed) {
      if (fixed < 0) {
        throw IsotoneException.invalid("worker " + fixed + ": want 0 or more");
      }
      worker = fixed;
      return this;
    }

    /** Sets the clock of the IDs, in unix milliseconds. */
    public Options clock(LongSupplier millis) {
      clock = millis;
      return this;
    }

    /** Bounds how far IDs may be ahead of the clock, up to 1 h. Default: 1 s. */
    public Options aheadMax(Duration most) {
      aheadMax = most;
      return this;
    }

    private void validate() {
      Duration hour = Duration.ofHours(1);
      if (lease.compareTo(Duration.ofMillis(100)) < 0 || lease.compareTo(hour) > 0 || aheadMax.isNegative()
          || aheadMax.compareTo(hour) > 0) {
        throw IsotoneException.invalid("generator: want a lease of 100 ms to 1 h, and IDs at most 1 h ahead");
      }
    }
  }

  private Generator(Core core, Options options, Duration timeout) {
    this.core = core;
    this.options = options;
    this.timeout = timeout;
    third = options.lease.toNanos() / 3;
  }

  static Generator open(Core core, Options options, Duration timeout) {
    options.validate();
    Generator g = new Generator(core, options, timeout);
    g.lease(Calls.nanos(timeout));
    core.generators.add(g);
    core.execute(g::keep);
    return g;
  }

  /** {@return the next ID, after waiting while there can be none, for at most the timeout of the generator's calls} */
  public long next() {
    return next(1, timeout)[0];
  }

  /**
   * Makes consecutive IDs: the sequence counts up, and on into the next millisecond. Waits, at most for the timeout,
   * while the layout allows no more, while the lease has ended, and while another worker is leased because the clock
   * went back.
   */
  public long[] next(int count, Duration timeout) {
    long[] ids = room(count);
    long most = Calls.nanos(timeout);
    long deadline = most == Call.NEVER ? most : core.now() + most;
    while (true) {
      IdSource now = source;
      long end = now.end();
      Refusal refusal = take(now, ids);
      if (refusal == null) {
        return ids;
      } else if (refusal.code != Code.OVERLOADED && !isBehind(refusal)) {
        throw refused(refusal);
      }
      await(now, end, refusal, deadline);
    }
  }

  /** Makes consecutive IDs without waiting, or uses none up. */
  public long[] tryNext(int count) {
    long[] ids = room(count);
    Refusal refusal = take(source, ids);
    if (refusal != null) {
      checkOpen();
      throw refused(refusal);
    }
    return ids;
  }

  private long[] room(int count) {
    long most = source.batchMax();
    if (count < 0 || count > most) {
      throw IsotoneException.invalid(count + " IDs at once: want at most " + most);
    }
    return new long[count];
  }

  private synchronized void checkOpen() {
    if (core.isClosed()) {
      throw Core.closed();
    } else if (closed) {
      throw new IsotoneException(Code.CLOSED, "the generator is closed");
    }
  }

  private static IsotoneException refused(Refusal refusal) {
    return new IsotoneException(refusal.code, "no ID: " + refusal.name().toLowerCase(java.util.Locale.ROOT));
  }

  private Refusal take(IdSource from, long[] ids) {
    Refusal refusal = from.take(options.clock.getAsLong(), ids);
    if (isBehind(refusal)) {
      synchronized (this) {
        behind = from;
        notifyAll();
      }
    }
    return refusal;
  }

  /** The clock is behind the IDs of the lease, or its beginning: another worker is leased, unless that is fixed. */
  private boolean isBehind(Refusal refusal) {
    return options.worker < 0 && (refusal == Refusal.CLOCK_BEHIND || refusal == Refusal.LEASE_NOT_BEGUN);
  }

  /** Waits until there may be IDs, of another lease than that of a source with this end. */
  private synchronized void await(IdSource now, long end, Refusal refusal, long deadline) {
    long left = deadline - core.now();
    checkOpen();
    if (left <= 0) {
      String cause = why == null ? "" : "; the worker's lease: " + why.getMessage();
      throw new IsotoneException(Code.DEADLINE_EXCEEDED, "no ID in time: " + refused(refusal).getMessage() + cause);
    } else if (now == source && end == now.end()) {
      pause(refusal == Refusal.LEASE_ENDED ? left : Math.min(left, POLL));
    }
  }

  private void pause(long nanos) {
    try {
      TimeUnit.NANOSECONDS.timedWait(this, Math.max(nanos, Pauses.MS));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IsotoneException(Code.CANCELED, "the caller was interrupted");
    }
  }

  /** {@return the worker; it changes only after a lease was lost or revoked, or the clock went back} */
  public int worker() {
    return source.worker;
  }

  /** {@return the layout of the IDs, which is the cluster's} */
  public Layout layout() {
    return source.layout;
  }

  /** {@return the first unix millisecond of the lease} */
  public long leaseStart() {
    return source.start;
  }

  /** {@return the unix millisecond that ends the lease, as far as it is known} */
  public long leaseEnd() {
    return source.end();
  }

  /** Renews the lease after each third of its length, or soon after a failure. */
  private void keep() {
    synchronized (this) {
      keeper = Thread.currentThread();
    }
    try {
      long due = core.now() + third;
      for (long gaveUp = Long.MIN_VALUE / 2; ; ) {
        long now = awaitDue(due, gaveUp);
        gaveUp = now < due ? now : gaveUp;
        due = core.now() + renew();
      }
    } catch (IsotoneException e) {
      // Closed.
    } finally {
      synchronized (this) {
        keeper = null;
        notifyAll();
      }
    }
  }

  /** Waits until a lease is to be requested. If the clock went back, that is before it is due, in a new session. */
  private synchronized long awaitDue(long due, long gaveUp) {
    for (long now = core.now(); ; now = core.now()) {
      checkOpen();
      if (now >= due) {
        return now;
      }
      // A request that failed may have been granted: it is repeated in its session. And a clock that keeps jumping must
      // not use up many workers.
      boolean another = behind == source && session.equals(granted) && now - gaveUp >= Math.min(third, Pauses.REFUSED);
      behind = null;
      if (another) {
        session = newSession();
        return now;
      }
      pause(due - now);
    }
  }

  /** Requests a renewal, and returns the pause until the next one. */
  private long renew() {
    try {
      lease(third);
      return third;
    } catch (IsotoneException e) {
      return Math.min(third, e.passes() || e.code() == Code.DEADLINE_EXCEEDED ? Pauses.RETRY : Pauses.REFUSED);
    }
  }

  /**
   * Requests a lease, or its renewal, which is the same command. If a renewal is refused because the lease was revoked
   * or no worker is free, the next request is in another session.
   */
  private void lease(long timeout) {
    List<String> words = new ArrayList<>(List.of("WORKER", "LEASE", session,
        Long.toString(options.clock.getAsLong()), Long.toString(options.lease.toMillis())));
    if (options.worker >= 0) {
      words.addAll(List.of("FIXED", Integer.toString(options.worker)));
    }
    boolean elsewhere = source != null && options.worker < 0;
    try {
      follow(ask(timeout, elsewhere ? Code.NO_WORKER : null, words));
      why = null;
    } catch (IsotoneException e) {
      if (e.code() == Code.NO_WORKER && elsewhere) {
        session = newSession();
      }
      why = e;
      throw e;
    }
  }

  /** Has the leader carry out a command. A refusal with the code last is final. */
  private Grant ask(long timeout, Code last, List<String> words) {
    Batch request = new Batch(Kind.WORKER, Timestamp.ZERO);
    request.words = words.toArray(String[]::new);
    request.last = last;
    Call<Grant> call = new Call<>(1, timeout, (batch, at, n) -> batch.grant);
    return core.aside().join(call, Kind.WORKER, request).result();
  }

  /**
   * Switches to a grant. One of the same worker that begins no later than the last one ends extends it: had there been
   * another holder in between, it would begin later.
   */
  private void follow(Grant got) {
    IdSource now = source;
    String before = granted;
    boolean extendsIt = now != null && now.worker == got.worker() && now.layout.equals(got.layout())
        && got.start() <= now.end();
    synchronized (this) {
      if (extendsIt) {
        now.extend(got.end());
      } else {
        source = new IdSource(got.layout(), got.worker(), got.start(), got.end(), options.aheadMax.toMillis());
      }
      granted = session;
      notifyAll();
    }
    if (now != null && !extendsIt) {
      long used = now.stop();
      if (!before.equals(session)) {
        release(now, before, used);
      }
    }
  }

  /** Returns the rest of a lease. If that fails, it ends by itself. */
  private void release(IdSource of, String in, long used) {
    try {
      ask(RELEASE, null, List.of("WORKER", "RELEASE", in,
          Integer.toString(of.worker), Long.toString(of.start), Long.toString(used)));
    } catch (IsotoneException e) {
      core.tell(events -> events.retried("", e));
    }
  }

  private static String newSession() {
    return java.util.HexFormat.of().toHexDigits(RANDOM.nextLong() | 1); // 0 means no session
  }

  /** Has calls that wait notice that the client is closed. */
  synchronized void wake() {
    notifyAll();
  }

  /** Ends the generator, and returns the rest of its lease to the cluster, which takes a second at most. */
  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      notifyAll();
      if (keeper != null) {
        keeper.interrupt();
      }
      while (keeper != null) {
        pause(RELEASE);
      }
    }
    core.generators.remove(this);
    release(source, granted, source.stop());
  }
}
