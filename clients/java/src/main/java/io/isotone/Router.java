package io.isotone;

import io.isotone.IsotoneException.Code;
import io.isotone.Node.Outcome;
import io.isotone.Pool.Use;
import io.isotone.Resp.View;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Keeps a client connected: knows the members, finds the leader, opens and closes connections, ends calls at their
 * deadlines. It is one thread that receives events from all others, so it needs no lock. It never waits for a node:
 * questions and dials have threads of their own, so one that hangs delays nothing.
 *
 * <p>It is level-triggered: {@link #step} compares the state with what it should be.
 */
final class Router implements Runnable {
  /** While there are calls, the router looks after them as often as this. */
  private static final long TICK = 25 * Pauses.MS;

  /** How long a leader may hold a request whose floor is ahead of its clock. */
  private static final long HELD_MAX = 10_000 * Pauses.MS;

  /** A connection may be silent for ten answer timeouts, but at least this, while the leader answers on another. */
  private static final long GIVE_UP_MIN = 1000 * Pauses.MS;

  private final Core core;
  private final Search search;
  private Connection.Rest rest = new Connection.Rest();
  private long next;
  private long sent;

  Router(Core core) {
    this.core = core;
    search = new Search(core.options.addrs, Pauses.RANDOM);
    publish();
  }

  @Override
  public void run() {
    while (!core.isClosed()) {
      core.wakesAt = Call.NEVER;
      next = Call.NEVER;
      long now = core.now();
      step(now);
      core.wakesAt = next;
      handle(next - now);
    }
    for (Consumer<Router> event = core.events.poll(); event != null; event = core.events.poll()) {
      event.accept(this);
    }
    for (Node n : search.nodes.values()) {
      n.hangUp();
      n.connections.forEach(cn -> cn.wire.close());
    }
    guards(Call.NEVER);
  }

  private void handle(long wait) {
    try {
      Consumer<Router> event = core.events.poll(wait, TimeUnit.NANOSECONDS);
      for (; event != null; event = core.events.poll()) {
        event.accept(this);
      }
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private void by(long at) {
    next = Math.min(next, at);
  }

  private void step(long now) {
    guards(now);
    boolean busy = watch(now);
    List<Node> due = search.ask(now);
    if (!due.isEmpty()) {
      forget();
      due.forEach(this::ask);
    } else if (busy && search.refresh(now)) {
      forget();
      question(search.leader);
    }
    if (search.suspected) {
      by(now + search.askWait(now));
    } else {
      search.nodes.values().forEach(Node::hangUp);
    }
    if (!search.leader.isEmpty()) {
      connect(core.stamps, search.leader, core.options.connections, now);
      connect(core.direct, search.leader, 1, now);
      connect(core.aside, search.leader, core.wantsAside.get() ? 1 : 0, now);
    }
    for (String addr : search.members()) {
      connect(core.ids, addr, core.wantsIds.get() ? 1 : 0, now);
    }
  }

  /** Ends conversations that take too long. */
  private void guards(long now) {
    core.guards.forEach((channel, guard) -> {
      if (now < guard.until) {
        by(guard.until);
        return;
      }
      try {
        channel.close();
      } catch (IOException e) {
        // It is closed all the same.
      }
    });
  }

  /** Looks after all calls. Reports whether there are any. */
  private boolean watch(long now) {
    boolean busy = false;
    for (Pool pool : core.pools) {
      busy |= watch(pool, now);
    }
    long before = sent;
    sent = core.pools.stream().mapToLong(pool -> pool.sent).sum();
    if (!busy && sent == before) {
      core.active.set(false);
      // A caller that still saw the flag may have begun just now.
      busy = core.pools.stream().anyMatch(Pool::isWaiting) || core.pools.stream().mapToLong(p -> p.sent).sum() != sent;
      core.active.compareAndSet(false, busy);
    }
    if (core.active.get()) {
      by(now + TICK);
    }
    return core.active.get();
  }

  private boolean watch(Pool pool, long now) {
    List<Connection> connections = connections(pool);
    boolean busy = pool.isWaiting();
    for (Connection cn : connections) {
      Batch batch = pool.pending(cn);
      if (batch != null) {
        busy = true;
        long timeout = timeout(pool, batch);
        by(cn.since + timeout > now ? cn.since + timeout : now + TICK);
        if (now - cn.since >= timeout) {
          late(cn, timeout);
        }
      }
    }
    expire(pool, connections, now);
    long until = pool.restUntil();
    if (until > now) {
      by(until);
    } else {
      pool.dispatch();
    }
    return busy;
  }

  /** Returns when an answer is late. The leader may hold a floor until its clock is there; leases go to disks. */
  private long timeout(Pool pool, Batch batch) {
    long usual = pool.took.timeout();
    if (batch.kind == Kind.WORKER) {
      return Math.max(usual, core.options.dialTimeout.toNanos());
    }
    return batch.above.equals(Timestamp.ZERO) ? usual : usual + HELD_MAX;
  }

  /** Fails the calls whose deadlines have come. */
  private void expire(Pool pool, List<Connection> connections, long now) {
    List<Call<?>> expired = new ArrayList<>();
    pool.eachCall(connections, call -> {
      if (call.deadline == 0) {
        call.deadline = now + call.timeout;
      }
      if (call.deadline > now) {
        by(call.deadline);
      } else if (!call.isDone()) {
        expired.add(call);
      }
    });
    if (pool.use == Use.DIRECT) { // its callers read the answers themselves
      expired.forEach(call -> call.fail(core.overdue(core.stamps.quota)));
      connections.forEach(cn -> {
        Batch batch = pool.pending(cn);
        if (batch != null && batch.calls.get(0).isDone()) {
          cn.wire.close();
        }
      });
    } else if (!expired.isEmpty()) {
      core.later(() -> expired.forEach(call -> call.fail(core.overdue(pool.quota))));
    }
  }

  /** The answer to a request is late. */
  private void late(Connection cn, long timeout) {
    if (cn.pool().use == Use.ASIDE || cn.pool().use == Use.IDS) {
      giveUp(cn);
    }
    if (cn.pool().use != Use.IDS && cn.wire.addr.equals(search.leader) && !search.suspected) {
      core.trouble.note(cn.wire.addr, new IOException("silent for " + timeout / Pauses.MS + " ms"));
      suspect(cn.wire.addr);
    }
  }

  /** Closes a silent connection. Its request is sent again on another one. */
  private static void giveUp(Connection cn) {
    cn.pool().took.giveUp();
    cn.givenUp = true;
    cn.wire.close();
  }

  private List<Connection> connections(Pool pool) {
    List<Connection> list = new ArrayList<>();
    for (Node n : search.nodes.values()) {
      n.connections.stream().filter(cn -> cn.pool() == pool).forEach(list::add);
    }
    return list;
  }

  private void publish() {
    core.seen = new View(search.leader, search.known());
  }

  /** Removes unused addresses, so that they do not accumulate. */
  private void forget() {
    search.nodes.values().removeIf(n -> {
      boolean unused = !n.isUsed() && !search.known().contains(n.addr);
      if (unused) {
        n.hangUp();
      }
      return unused;
    });
  }

  /** A node has failed, refused or been silent. */
  void suspect(String addr) {
    if (addr.equals(search.leader)) {
      search.suspected = true;
      core.suspected = true;
    }
  }

  /** The first request after a suspicion was answered. */
  void recovered(Connection cn) {
    core.trouble.clear();
    search.recovered(cn.wire.addr);
  }

  /** The node at the end of a connection redirects to another leader. */
  void moved(Connection cn, String leader) {
    if (search.moved(cn.wire.addr, leader, core.now())) {
      core.suspected = true;
      followed();
    } else {
      cn.wire.close();
    }
  }

  /** There is another leader. */
  private void followed() {
    publish();
    rest = new Connection.Rest();
    for (Node n : search.nodes.values()) {
      if (!n.addr.equals(search.leader)) {
        core.retire(n.addr);
        n.connections.stream().filter(cn -> cn.pool() != core.ids).forEach(cn -> cn.wire.close());
      }
    }
  }

  /** Dials until there are so many connections to an address. */
  private void connect(Pool pool, String addr, int want, long now) {
    Node n = search.node(addr);
    int use = pool.use.ordinal();
    long missing = want - n.dialing[use] - n.connections(pool.use);
    if (missing > 0 && n.dialAfter[use] > now) {
      by(n.dialAfter[use]);
      return;
    }
    for (; missing > 0; missing--) {
      n.dialing[use]++;
      core.execute(() -> dial(core, pool, addr));
    }
  }

  /** Opens a connection. A frozen machine accepts some, too, so one counts as open only when the node has answered. */
  private static void dial(Core core, Pool pool, String addr) {
    Wire open = null;
    try {
      Wire wire = Wire.open(core, addr, "PING");
      open = wire;
      if (!"PONG".equals(wire.ask(core)) || wire.in.hasMore()) {
        throw new ProtocolException("malformed answer to PING");
      }
      pool.took.add(wire.took);
      core.post(router -> router.dialed(pool, addr, wire, null));
    } catch (IOException | IsotoneException e) {
      failed(core, addr, open, e);
      core.post(router -> router.dialed(pool, addr, null, e));
    }
    closeIfClosed(core, open);
  }

  private static void failed(Core core, String addr, Wire open, Exception why) {
    if (open != null) {
      open.close();
    }
    if (!core.isClosed()) {
      core.trouble.note(addr, why);
    }
  }

  private static void closeIfClosed(Core core, Wire open) {
    if (open != null && core.isClosed()) {
      open.close();
    }
  }

  private void dialed(Pool pool, String addr, Wire wire, Exception why) {
    Node n = search.node(addr);
    int use = pool.use.ordinal();
    n.dialing[use]--;
    reported(n, why);
    if (why != null) {
      failed(n, pool.use, search.pauseMax(core.now()));
      return;
    }
    boolean wanted = pool == core.ids ? search.members().contains(addr) : addr.equals(search.leader);
    if (!wanted) {
      wire.close();
      return;
    }
    if (pool == core.ids && n.failures[use] > 0) {
      n.failures[use]--; // one that repeatedly connects and falls silent is tried less often
    }
    boolean isNews = pool == core.stamps && search.connecting;
    attach(pool, n, wire);
    if (isNews) {
      question(addr); // it may have other members than the leader before it
    }
  }

  private void attach(Pool pool, Node n, Wire wire) {
    Connection cn = new Connection(core, pool, wire, pool == core.ids ? new Connection.Rest() : rest);
    n.connections.add(cn);
    if (pool == core.direct) {
      pool.put(cn);
      return;
    }
    if (pool == core.stamps && search.connected()) { // before anything is answered
      core.tell(events -> events.leader(n.addr));
      core.ready.complete(null);
    }
    core.execute(cn::run);
    refuse();
  }

  /** An address cannot be reached, or its connections are unusable. */
  private void failed(Node n, Use use, long most) {
    long limit = most;
    if (use == Use.IDS && n.outcome != Outcome.REFUSES) {
      if (!connections(core.ids).isEmpty()) {
        limit = Pauses.SPARE;
      } else if (!search.leader.isEmpty()) {
        question(search.leader); // there may be new members
      }
    }
    search.failed(n, use, limit, core.now());
    if (use == Use.STAMPS) {
      suspect(n.addr);
    }
  }

  /** The last event of a connection. One that never answered counts as a failed dial. */
  void ended(Connection cn, Exception why) {
    Node n = search.node(cn.wire.addr);
    n.connections.remove(cn);
    Use use = cn.pool().use;
    if (cn.givenUp && (use == Use.IDS || use == Use.ASIDE) || !cn.answered) {
      failed(n, use, Pauses.RETRY);
    } else if (use != Use.IDS) {
      suspect(n.addr);
    }
    if (use == Use.IDS && connections(core.ids).isEmpty()) {
      search.hurry(use, core.now());
    }
  }

  /** Asks a node for the leader and the members, unless it is asked already, or has just refused this client. */
  private void question(String addr) {
    if (search.question(addr, core.now())) {
      ask(search.node(addr));
    }
  }

  void ask(Node n) {
    Wire kept = n.inquiry;
    n.inquiry = null;
    if (!core.execute(() -> ask(core, n.addr, kept)) && kept != null) {
      kept.close();
    }
  }

  /** Asks on a kept connection or, if there is none or it has ended, on a new one. */
  private static void ask(Core core, String addr, Wire kept) {
    Wire open = kept;
    View view = null;
    Exception failure = null;
    try {
      Object answer = null;
      if (kept != null) {
        try {
          answer = kept.ask(core, "CLUSTER", "SLOTS");
        } catch (IOException e) {
          kept.close();
          open = null;
        }
      }
      if (open == null) {
        open = Wire.open(core, addr, "CLUSTER", "SLOTS");
        answer = open.ask(core);
      }
      view = Resp.view(answer, addr);
    } catch (IOException | IsotoneException e) {
      boolean asGoodAsBefore = e instanceof IsotoneException refusal && refusal.passes();
      failed(core, addr, asGoodAsBefore ? null : open, e);
      open = asGoodAsBefore ? open : null;
      failure = e;
    }
    Wire wire = open;
    View seen = view;
    Exception why = failure;
    core.post(router -> router.answered(addr, seen, wire, why));
    closeIfClosed(core, open);
  }

  private void answered(String addr, View seen, Wire open, Exception why) {
    Node n = search.node(addr);
    n.asking = false;
    reported(n, why);
    Wire wire = why == null ? heard(n, seen, open) : open;
    if (wire != null && search.suspected && !wire.in.hasMore()) {
      n.inquiry = wire;
    } else if (wire != null) {
      wire.close();
    }
  }

  /** Takes in what a node says of the cluster. Returns the connection, unless it has become one for timestamps. */
  private Wire heard(Node n, View seen, Wire wire) {
    boolean follows = search.heard(n.addr, seen, core.now());
    publish();
    connections(core.ids).stream().filter(cn -> !search.members().contains(cn.wire.addr)).forEach(c -> c.wire.close());
    boolean leads = seen.leader().equals(n.addr) && n.addr.equals(search.leader);
    if (follows) {
      followed();
    } else if (leads) {
      confirmed(n);
    }
    int have = n.dialing[0] + (int) n.connections(Use.STAMPS);
    boolean wanted = have < core.options.connections && n.dialAfter[0] <= core.now();
    if (leads && search.suspected && wanted && !wire.in.hasMore()) {
      core.stamps.took.add(wire.took);
      attach(core.stamps, n, wire); // so the first request does not wait for a new connection
      return null;
    }
    return wire;
  }

  /** The leader says that it leads. Its silent connections are broken then. */
  private void confirmed(Node n) {
    long limit = Math.max(10 * core.stamps.took.timeout(), GIVE_UP_MIN);
    for (Connection cn : n.connections) {
      if (cn.pool() == core.stamps || cn.pool() == core.direct) {
        search.suspected = false;
        if (cn.pool().pending(cn) != null && core.now() - cn.since > limit) {
          giveUp(cn);
        }
      }
    }
  }

  /** Handles the outcome of an exchange. If all that can be reached are foreign, calls that are late say so. */
  private void reported(Node n, Exception why) {
    Outcome outcome = Outcome.OURS;
    if (why instanceof IsotoneException refusal) {
      n.why = refusal;
      outcome = refusal.code() == Code.WRONG_CLUSTER ? Outcome.FOREIGN
          : refusal.refusesClient() ? Outcome.REFUSES : Outcome.OURS;
    } else if (why != null) {
      outcome = Outcome.UNREACHABLE;
    }
    search.reported(n, outcome, core.now());
    IsotoneException foreign = null;
    for (Node other : search.nodes.values()) {
      if (other.outcome == Outcome.FOREIGN && foreign == null) {
        foreign = other.why;
      } else if (other.outcome == Outcome.OURS || other.outcome == Outcome.REFUSES) {
        foreign = null;
        break;
      }
    }
    core.foreign = foreign;
    refuse();
  }

  /** Fails the calls that wait for connections which the nodes refuse to this client, until that has changed. */
  private void refuse() {
    for (Pool pool : List.of(core.stamps, core.aside, core.ids)) {
      refuse(pool);
    }
  }

  private void refuse(Pool pool) {
    IsotoneException why = null;
    Iterable<String> matter = pool == core.ids ? search.members()
        : search.leader.isEmpty() ? search.known() : List.of(search.leader);
    if (!connections(pool).isEmpty()) {
      pool.refuse(null);
      return;
    }
    for (String addr : matter) {
      Node n = search.node(addr);
      boolean open = n.asking || n.dialing[pool.use.ordinal()] > 0;
      if (n.outcome == Outcome.UNREACHABLE && open) {
        return; // not known yet
      } else if (n.outcome == Outcome.OURS || n.outcome == Outcome.FOREIGN) {
        pool.refuse(null);
        return;
      } else if (n.outcome == Outcome.REFUSES) {
        why = n.why;
      }
    }
    pool.refuse(why);
    if (why != null && pool == core.stamps) {
      core.ready.completeExceptionally(why);
    }
  }
}
