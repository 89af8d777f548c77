package io.isotone;

import io.isotone.IsotoneException.Code;
import io.isotone.Resp.View;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** What the parts of a client share: it is safe for concurrent use. */
final class Core {
  /** Deadlines that are further away may be noticed a tick late, so that most calls need not read the clock. */
  private static final long EXACT = 1000 * Pauses.MS;

  private static final System.Logger LOG = System.getLogger("io.isotone");

  final Options options;
  final Pool stamps = new Pool(this, Pool.Use.STAMPS);
  final Pool direct = new Pool(this, Pool.Use.DIRECT);
  final Pool aside = new Pool(this, Pool.Use.ASIDE);
  final Pool ids = new Pool(this, Pool.Use.IDS);
  final List<Pool> pools = List.of(stamps, direct, aside, ids);

  /** The largest timestamp that was received. */
  final AtomicReference<Timestamp> floor;

  final Trouble trouble = new Trouble();
  final LinkedBlockingQueue<Consumer<Router>> events = new LinkedBlockingQueue<>();
  final Map<SocketChannel, Guard> guards = new ConcurrentHashMap<>();
  final CountDownLatch closing = new CountDownLatch(1);

  /** Completed when a leader is connected, or the nodes refuse the client. */
  final CompletableFuture<Void> ready = new CompletableFuture<>();

  /** Connections of these uses are wanted. */
  final AtomicBoolean wantsAside = new AtomicBoolean();

  final AtomicBoolean wantsIds = new AtomicBoolean();

  final Set<Generator> generators = ConcurrentHashMap.newKeySet();

  /** The next success ends a suspicion. */
  volatile boolean suspected;

  /** Set while only nodes of another cluster answer. */
  volatile IsotoneException foreign;

  /** The leader and the members, for other threads than the router's. */
  volatile View seen;

  /** When the router looks at deadlines next; NEVER while it works, so that all that is new wakes it. */
  volatile long wakesAt = Call.NEVER;

  /** The router looks for late answers and deadlines. */
  final AtomicBoolean active = new AtomicBoolean();

  private final AtomicBoolean woken = new AtomicBoolean();
  private final AtomicReference<String> pin;
  private final long epoch = System.nanoTime() - 1;
  private final ThreadPoolExecutor threads = new ThreadPoolExecutor(
      0, Integer.MAX_VALUE, 5, TimeUnit.SECONDS, new SynchronousQueue<>(), ClientThread::new);

  /** A thread of a client: answers are completed on such ones, so that no call may block there. */
  static final class ClientThread extends Thread {
    ClientThread(Runnable run) {
      super(run, "isotone-client");
      setDaemon(true);
    }
  }

  /** Bounds a conversation in time: the router closes the channel when it is over. */
  final class Guard implements AutoCloseable {
    private final SocketChannel channel;
    final String addr;
    final long until;

    private Guard(String addr, SocketChannel channel) {
      this.addr = addr;
      this.channel = channel;
      until = now() + options.dialTimeout.toNanos();
    }

    boolean isOver() {
      return now() >= until;
    }

    @Override
    public void close() {
      guards.remove(channel);
    }
  }

  Core(Options options) {
    this.options = options;
    floor = new AtomicReference<>(options.floor);
    pin = new AtomicReference<>(options.cluster);
  }

  /** Returns the time since the client was made, in nanoseconds; more than 0. */
  long now() {
    return System.nanoTime() - epoch;
  }

  /** Has a thread do some work. Returns false if the client is closed, and nobody does it. */
  boolean execute(Runnable work) {
    try {
      threads.execute(work);
      return true;
    } catch (RejectedExecutionException e) {
      return false;
    }
  }

  /** Completes calls on a thread where that delays nothing: callers may have added callbacks to them. */
  void later(Runnable completions) {
    try {
      threads.execute(completions);
    } catch (RejectedExecutionException e) {
      completions.run();
    }
  }

  /** Bounds a conversation by the dial timeout. */
  Guard guard(String addr, SocketChannel channel) throws IOException {
    Guard guard = new Guard(addr, channel);
    guards.put(channel, guard);
    if (isClosed()) {
      channel.close();
    } else if (guard.until < wakesAt) {
      wake();
    }
    return guard;
  }

  void post(Consumer<Router> event) {
    events.add(event);
  }

  void wake() {
    if (!woken.getAndSet(true)) {
      events.add(router -> woken.set(false));
    }
  }

  /** Has the router look after a call, or a request. */
  void watch(Call<?> call) {
    if (call.timeout < EXACT && call.deadline == 0) {
      call.deadline = now() + call.timeout;
      if (call.deadline < wakesAt) {
        wake();
      }
    }
    if (!active.get() && active.compareAndSet(false, true)) {
      wake();
    }
  }

  /** Has the pool that is used seldom get a connection. */
  Pool aside() {
    if (wantsAside.compareAndSet(false, true)) {
      wake();
    }
    return aside;
  }

  boolean isClosed() {
    return closing.getCount() == 0;
  }

  static IsotoneException closed() {
    return new IsotoneException(Code.CLOSED, "the client is closed");
  }

  /** Ends all threads but the caller's. */
  void close() {
    closing.countDown();
    pools.forEach(Pool::close);
    generators.forEach(Generator::wake);
    wake();
    threads.shutdown();
    if (!(Thread.currentThread() instanceof ClientThread)) {
      try {
        threads.awaitTermination(5, TimeUnit.SECONDS); // a resolver of names may take longer
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  String cluster() {
    return pin.get();
  }

  /** Checks what a node reports as its cluster. The first one pins it, unless the options have. */
  void checkCluster(String addr, String id) {
    if (id == null) {
      if (!options.cluster.isEmpty()) {
        throw reject(addr, addr + " does not report its cluster, want " + options.cluster);
      }
    } else if (id.isEmpty()) {
      throw new IsotoneException(Code.NO_LEADER, "the node does not know its cluster yet");
    } else if (!pin.compareAndSet("", id) && !pin.get().equals(id)) {
      throw reject(addr, addr + " belongs to cluster " + id + ", want " + pin.get());
    }
  }

  private IsotoneException reject(String addr, String message) {
    IsotoneException why = new IsotoneException(Code.WRONG_CLUSTER, message);
    tell(e -> e.rejected(addr, why));
    return why;
  }

  /** Raises the floor by an answer. Returns false if that is not above the floor from when its request was sent. */
  boolean raiseFloor(Batch batch) {
    if (!batch.floor.isBefore(batch.first)) {
      return false;
    }
    floor.accumulateAndGet(batch.place(batch.count - 1), (a, b) -> a.isBefore(b) ? b : a);
    return true;
  }

  /** Removes the free connections to a node that does not lead any more. */
  void retire(String addr) {
    stamps.retire(addr);
    aside.retire(addr);
    for (Connection cn : direct.retire(addr)) {
      cn.wire.close();
      post(router -> router.ended(cn, null)); // no thread reads there
    }
  }

  void retried(String addr, Exception why) {
    if (!isClosed()) {
      trouble.note(addr, why);
      tell(e -> e.retried(addr, why));
    }
  }

  void tell(Consumer<Events> event) {
    try {
      event.accept(options.events);
    } catch (Throwable e) { // an error that ended a thread of the client would have calls wait for ever
      LOG.log(System.Logger.Level.WARNING, "Events of an Isotone client have thrown", e);
    }
  }

  /** Returns the error of a call whose deadline has come; quota is the latest refusal, if that was one. */
  IsotoneException overdue(IsotoneException quota) {
    IsotoneException other = foreign;
    if (quota != null) {
      return new IsotoneException(quota.code(), "no answer in time: " + quota.getMessage());
    } else if (other != null) {
      return new IsotoneException(other.code(), "no other node answers in time: " + other.getMessage());
    }
    return new IsotoneException(Code.DEADLINE_EXCEEDED, "no answer in time" + trouble + trouble.silent(unanswered()));
  }

  /** Returns the nodes from which an answer is awaited: those that are dialed or asked, and the leader. */
  private Set<String> unanswered() {
    Set<String> addrs = new TreeSet<>();
    guards.values().forEach(guard -> addrs.add(guard.addr));
    View view = seen;
    if (view != null && !view.leader().isEmpty()) {
      addrs.add(view.leader());
    }
    return addrs;
  }

  /** The latest failure of each node since the latest success. */
  static final class Trouble {
    private static final int NODES_MAX = 8;

    private record Failure(Exception why, int times) {}

    private final Map<String, Failure> failures = new LinkedHashMap<>();

    synchronized void note(String addr, Exception why) {
      Failure before = failures.remove(addr);
      if (failures.size() == NODES_MAX) {
        failures.remove(failures.keySet().iterator().next());
      }
      failures.put(addr, new Failure(why, before == null ? 1 : before.times + 1));
    }

    synchronized void clear() {
      failures.clear();
    }

    /** Returns text to append to the message about the failures: the nodes that are silent, but have not failed. */
    synchronized String silent(Set<String> addrs) {
      return addrs.stream().filter(addr -> !failures.containsKey(addr))
          .map(addr -> "; " + addr + ": it has not answered yet").collect(Collectors.joining());
    }

    /** Returns text to append to a message. */
    @Override
    public synchronized String toString() {
      List<String> list = new ArrayList<>();
      failures.forEach((addr, f) ->
          list.add("; " + addr + ": " + text(f.why) + (f.times > 1 ? " (" + f.times + " times)" : "")));
      return String.join("", list);
    }

    private static String text(Exception why) {
      return why.getMessage() == null ? why.toString() : why.getMessage();
    }
  }
}
