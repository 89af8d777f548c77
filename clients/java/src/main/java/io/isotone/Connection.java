package io.isotone;

import io.isotone.IsotoneException.Code;
import java.io.IOException;
import java.net.ProtocolException;
import java.time.Duration;

/** A connection to a node with at most one request under way. */
final class Connection {
  /** When requests to a node may go on after a refusal: shared by all connections to the leader. */
  static final class Rest {
    volatile long until;
    volatile int refusals;

    void after(long now, long pause) {
      refusals++;
      until = Math.max(until, now + pause);
    }
  }

  final Wire wire;
  final Rest rest;
  private final Core core;
  private final Pool pool;

  /** The request under way, and whether the connection has ended: both are guarded by the pool. */
  Batch pending;

  boolean ended;

  /** The request under way was written, and something arrived: in this order, or it is not its answer. */
  private volatile boolean written;

  private volatile boolean arrived;

  /** When the request under way was sent. */
  volatile long since;

  /** It was silent for too long, and is closed for that. */
  volatile boolean givenUp;

  /** A request was answered. */
  volatile boolean answered;

  Connection(Core core, Pool pool, Wire wire, Rest rest) {
    this.core = core;
    this.pool = pool;
    this.wire = wire;
    this.rest = rest;
  }

  Pool pool() {
    return pool;
  }

  /** Returns the floor that a request carries: a node that was set back raises itself to it before its first answer. */
  static Timestamp carried(Timestamp floor, Timestamp above, boolean answered) {
    if (answered && above.equals(Timestamp.ZERO)) {
      return Timestamp.ZERO;
    }
    return floor.isBefore(above) ? above : floor;
  }

  /** Sends the request that {@link Pool} has set. Its answer, or the end of the connection, comes to {@link #run}. */
  void send() {
    Batch batch = pool.pending(this);
    if (batch != null) {
      try {
        write(batch);
      } catch (IOException e) {
        wire.close();
      }
    }
  }

  private void write(Batch batch) throws IOException {
    if (arrived || wire.hasInput()) {
      throw new ProtocolException("an answer without a request");
    }
    written = true;
    batch.floor = core.floor.get();
    wire.write(batch.request(carried(batch.floor, batch.above, answered)));
  }

  /** Reads answers until the connection ends. */
  void run() {
    pool.put(this);
    Exception why = new IOException("the connection was closed");
    try {
      while (true) {
        wire.in.await();
        arrived = true;
        exchange();
      }
    } catch (IOException | IsotoneException e) {
      why = e;
    }
    wire.close();
    again(pool.end(this), why);
    Exception last = why;
    core.post(router -> router.ended(this, last));
    pool.dispatch();
  }

  private void again(Batch batch, Exception why) {
    if (batch != null) {
      pool.requeue(batch);
      core.retried(wire.addr, why);
    }
  }

  /** Reads an answer and acts on it. Throws if the connection is unusable. */
  private void exchange() throws IOException {
    Batch batch = pool.pending(this);
    if (batch == null || !written) {
      throw new ProtocolException("an answer without a request");
    }
    IsotoneException refusal = read(batch);
    pool.answered(this);
    if (refusal == null) {
      refusal = accept(batch);
    }
    if (refusal == null) {
      batch.answer();
      pool.put(this);
    } else {
      refused(batch, refusal);
    }
  }

  /** Reads the answer, or returns the refusal. */
  private IsotoneException read(Batch batch) throws IOException {
    IsotoneException refusal = batch.read(wire.in);
    written = false;
    arrived = false;
    if (wire.in.hasMore()) {
      throw new ProtocolException("more than one answer"); // it would be taken for the next one
    }
    return refusal;
  }

  /** Takes in an answer. Throws if its order is wrong, after the calls have failed. */
  private IsotoneException accept(Batch batch) throws IOException {
    if (batch.kind.isStamps() && !core.raiseFloor(batch)) {
      IsotoneException broken = new IsotoneException(Code.INTERNAL, wire.addr + " issued " + batch.first
          + " for a request that was sent after " + batch.floor + " had been received: the order is broken");
      core.tell(events -> events.rejected(wire.addr, broken));
      wire.close();
      batch.fail(broken);
      throw new ProtocolException(broken.getMessage());
    }
    if (batch.kind.isStamps() && !batch.above.isBefore(batch.first) && !batch.above.equals(Timestamp.ZERO)) {
      return new IsotoneException(Code.REGRESSED, wire.addr + " issued " + batch.first + ", not above " + batch.above);
    }
    succeeded(batch);
    return null;
  }

  private void succeeded(Batch batch) {
    long spent = core.now() - since;
    pool.took.add(spent);
    answered |= batch.kind != Kind.WORKER;
    rest.refusals = 0;
    pool.quota = null;
    if (core.options.events != Events.NONE) {
      core.tell(e -> e.answered(wire.addr, batch.calls.size(), batch.count, Duration.ofNanos(spent)));
    }
    if (pool.use != Pool.Use.IDS && core.suspected) {
      core.suspected = false;
      core.post(router -> router.recovered(this));
    }
  }

  /** Acts on a refusal by its class. */
  private void refused(Batch batch, IsotoneException why) {
    boolean known = answered || core.options.credentials != null;
    if (why.code() == Code.UNAUTHORIZED && known) {
      again(batch, why);
      throw why; // the node has forgotten who the client is: a new connection authenticates again
    } else if (!why.passes() || why.code() == batch.last) {
      rest.refusals = 0;
      pool.put(this);
      batch.fail(why);
      return;
    } else if (moved(why)) {
      again(batch, why);
      return;
    }
    rest(why);
    again(batch, why);
    if (pool.use != Pool.Use.IDS && why.code() != Code.QUOTA_EXCEEDED) {
      core.post(router -> router.suspect(wire.addr)); // it cannot serve now
    }
    pool.put(this);
    core.wake();
  }

  /** Sends nothing for a while: to the node or, for a quota, which others have as well, to any. */
  private void rest(IsotoneException why) {
    if (why.code() == Code.QUOTA_EXCEEDED) {
      pool.quota = why;
      rest.after(core.now(), Pauses.quota(why.retryAfter, rest.refusals, Pauses.RANDOM));
      pool.restsUntil = rest.until;
    } else {
      rest.after(core.now(), Pauses.after(rest.refusals, Pauses.RETRY, Pauses.RANDOM));
    }
  }

  /** Reports whether a refusal names another leader. Nothing else is sent to this one then. */
  private boolean moved(IsotoneException why) {
    boolean moved = pool.use != Pool.Use.IDS && !why.leader.isEmpty() && !why.leader.equals(wire.addr);
    if (moved) {
      pool.end(this);
      core.retire(wire.addr);
      core.post(router -> router.moved(this, why.leader));
    }
    return moved;
  }

  /**
   * Makes a call on the calling thread, on a connection that {@link Pool#takeFree} has given. Returns false if the call
   * has failed, or must join a batch instead, which handles failures.
   */
  boolean ask(Batch batch) {
    try {
      write(batch);
      IsotoneException refusal = read(batch);
      pool.answered(this);
      if (refusal == null) {
        accept(batch); // no floor of its own: the answer is right, or this throws
      } else if (moved(refusal) || refusal.code() == Code.UNAUTHORIZED
          || refusal.passes() && refusal.code() != Code.QUOTA_EXCEEDED) {
        throw refusal;
      } else if (refusal.passes()) {
        rest(refusal);
      } else {
        batch.fail(refusal);
      }
      pool.put(this);
      return refusal == null;
    } catch (IOException | IsotoneException e) {
      wire.close();
      pool.end(this);
      core.post(router -> router.ended(this, e));
    }
    return false;
  }
}
