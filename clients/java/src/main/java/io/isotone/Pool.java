package io.isotone;

import io.isotone.IsotoneException.Code;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/**
 * Collects calls into batches, and sends these over its connections, each with at most one request under way: a second
 * one would only wait at the node, where no call can join it any more. A batch is sent as soon as a connection is free,
 * by the caller if one is free already, otherwise by the thread that has just read an answer. So batches grow with the
 * load, and no call waits for one to fill.
 */
final class Pool {
  /**
   * What connections are for. Those of all but IDS lead to the leader. ASIDE is for workers and for floors of calls,
   * whose requests the leader may hold.
   */
  enum Use { STAMPS, DIRECT, ASIDE, IDS }

  final Use use;
  private final Core core;
  private final Deque<Batch> waiting = new ArrayDeque<>();
  private final Batch[] open = new Batch[Kind.values().length];
  private final Deque<Connection> free = new ArrayDeque<>();
  private int queued;
  private int dead;
  private boolean closed;
  private IsotoneException refused;
  private volatile int idle;
  private volatile int latest;

  /** How many requests were sent. */
  volatile long sent;

  /** The latest refusal because of a quota, until a success. */
  volatile IsotoneException quota;

  /** Until when nothing is sent, because of a quota. */
  volatile long restsUntil;

  final Pauses.Estimate took = new Pauses.Estimate();

  Pool(Core core, Use use) {
    this.core = core;
    this.use = use;
  }

  /** Has a call take part in a batch, of its own if it names a floor. */
  <T> Call<T> join(Call<T> call, Kind kind, Timestamp above) {
    return join(call, kind, above.equals(Timestamp.ZERO) ? null : new Batch(kind, above));
  }

  /** Has a call take part in a batch: in a new one of its own unless that is null. */
  <T> Call<T> join(Call<T> call, Kind kind, Batch alone) {
    IsotoneException why;
    Connection next = null;
    synchronized (this) {
      why = closed ? Core.closed() : refused;
      if (why == null && isFull()) {
        why = new IsotoneException(Code.OVERLOADED, "too many calls wait" + core.trouble);
      }
      if (why == null) {
        Batch batch = alone == null ? openFor(kind, call.count) : queue(alone);
        batch.add(call);
        queued++;
        call.joins(this, batch);
        next = take();
      }
    }
    if (why != null) {
      call.completeExceptionally(why);
    } else {
      core.watch(call);
      send(next);
    }
    return call;
  }

  private Batch openFor(Kind kind, long count) {
    Batch batch = open[kind.ordinal()];
    if (batch == null || batch.count + count > kind.countMax) {
      batch = queue(new Batch(kind, Timestamp.ZERO));
      open[kind.ordinal()] = batch;
    }
    return batch;
  }

  private Batch queue(Batch batch) {
    waiting.add(batch);
    return batch;
  }

  /** Reports whether too many calls wait. Those that have ended do not count. */
  private boolean isFull() {
    if (queued >= core.options.queueMax && dead > 0) {
      waiting.forEach(Batch::trim);
      queued = waiting.stream().mapToInt(batch -> batch.calls.size()).sum();
      dead = 0;
    }
    return queued >= core.options.queueMax;
  }

  /** Takes a batch and a connection for it, which must then send it, or returns null. */
  private Connection take() {
    if (free.isEmpty() || waiting.isEmpty()) {
      return null;
    }
    long now = core.now();
    Connection cn = rested(now);
    Batch batch = cn == null ? null : next();
    if (batch == null) {
      return null;
    }
    free.remove(cn);
    idle = free.size();
    latest = batch.calls.size();
    begin(cn, batch, now);
    return cn;
  }

  private Connection rested(long now) {
    for (Connection cn : restsUntil > now ? List.<Connection>of() : free) {
      if (cn.rest.until <= now) {
        return cn;
      }
    }
    return null;
  }

  private void begin(Connection cn, Batch batch, long now) {
    cn.since = now;
    cn.pending = batch;
    sent++;
  }

  private Batch next() {
    for (Batch batch = waiting.poll(); batch != null; batch = waiting.poll()) {
      queued -= batch.calls.size();
      batch.sent = true;
      if (open[batch.kind.ordinal()] == batch) {
        open[batch.kind.ordinal()] = null;
      }
      batch.trim();
      if (!batch.calls.isEmpty()) {
        return batch;
      }
    }
    return null;
  }

  private void send(Connection first) {
    for (Connection cn = first; cn != null; ) {
      cn.send();
      synchronized (this) {
        cn = take();
      }
    }
  }

  /** Sends what waits over connections that are free. */
  void dispatch() {
    Connection next;
    synchronized (this) {
      next = take();
    }
    send(next);
  }

  /** Gives a connection back, or a new one. */
  void put(Connection cn) {
    synchronized (this) {
      if (!closed && !cn.ended) {
        free.add(cn);
        idle = free.size();
      }
    }
    dispatch();
  }

  /** Takes a free connection for a request beside the batches, or returns null. */
  synchronized Connection takeFree(Batch batch) {
    long now = core.now();
    Connection cn = rested(now);
    if (cn != null) {
      free.remove(cn);
      begin(cn, batch, now);
    }
    return cn;
  }

  /** Reports whether there seem to be no other calls. */
  boolean isQuiet() {
    return latest <= 1 && idle >= core.options.connections;
  }

  /** Removes a connection that has ended, or is about to, and takes its request. */
  Batch end(Connection cn) {
    synchronized (this) {
      cn.ended = true;
      free.remove(cn);
      idle = free.size();
      Batch batch = cn.pending;
      cn.pending = null;
      return batch;
    }
  }

  /** Takes the request that a connection has answered. */
  synchronized Batch answered(Connection cn) {
    Batch batch = cn.pending;
    cn.pending = null;
    return batch;
  }

  synchronized Batch pending(Connection cn) {
    return cn.pending;
  }

  /** Queues a request again. That is safe: nobody has received numbers of earlier attempts. */
  void requeue(Batch batch) {
    IsotoneException why;
    synchronized (this) {
      why = closed ? Core.closed() : refused;
      if (why == null) {
        batch.trim();
        batch.sent = false;
        queued += batch.calls.size();
        waiting.addFirst(batch);
      }
    }
    if (why != null) {
      batch.fail(why);
    }
  }

  /** A call has ended before its answer. */
  synchronized void left(Batch batch) {
    if (!batch.sent) {
      dead++;
    }
  }

  /** Removes the free connections to an address, which are about to be closed. */
  synchronized List<Connection> retire(String addr) {
    List<Connection> retired = free.stream().filter(cn -> cn.wire.addr.equals(addr)).toList();
    retired.forEach(cn -> cn.ended = true);
    free.removeAll(retired);
    idle = free.size();
    return retired;
  }

  /** Shows all calls that wait, and those under way on the connections. */
  void eachCall(List<Connection> connections, Consumer<Call<?>> visit) {
    synchronized (this) {
      waiting.forEach(batch -> batch.calls.forEach(visit));
      for (Connection cn : connections) {
        if (cn.pending != null) {
          cn.pending.calls.forEach(visit);
        }
      }
    }
  }

  /** Returns when a connection has rested, if calls wait for that, and else {@link Call#NEVER}. */
  synchronized long restUntil() {
    long until = Call.NEVER;
    for (Connection cn : waiting.isEmpty() ? List.<Connection>of() : free) {
      until = Math.min(until, Math.max(cn.rest.until, restsUntil));
    }
    return until;
  }

  synchronized boolean isWaiting() {
    return !waiting.isEmpty();
  }

  /** Fails the calls that wait, and later ones until it is called with null. */
  void refuse(IsotoneException why) {
    refuse(why, false);
  }

  /** Ends the pool. Requests under way fail when their connections end. */
  void close() {
    refuse(Core.closed(), true);
  }

  private void refuse(IsotoneException why, boolean forEver) {
    List<Batch> failed = new ArrayList<>();
    synchronized (this) {
      closed |= forEver;
      refused = why;
      if (closed) {
        free.clear();
      }
      for (Batch batch = why == null ? null : next(); batch != null; batch = next()) {
        failed.add(batch);
      }
    }
    core.later(() -> failed.forEach(batch -> batch.fail(why)));
  }
}
