import { pauseAfter, pauseMax, quotaPause } from "./backoff.js";
import { type Batch, kindArrival, kindIds, kinds16, kinds64 } from "./batch.js";
import type { Connection } from "./connection.js";
import { IsotoneError, classOf, readable } from "./errors.js";
import type { Hooks, Options } from "./options.js";
import { Pool, type PoolOwner } from "./pool.js";
import type { Use } from "./search.js";
import { Timestamp } from "./timestamp.js";
import { Trouble } from "./trouble.js";

/** Requests of one connection that are under way at once. A request for IDs would only wait there, where no call can join it any more. */
const windows: Readonly<Record<Use, number>> = { stamps: 16, ahead: 64, leases: 64, ids: 1, ask: 0 };

/** What requests need of who keeps connections. */
export interface Routes {
  /** Returns the connections for a pool, the one to use first. */
  connections(pool: Pool): Connection[];
  /** A request is sent on a connection, whose answer is late after some time. */
  sent(connection: Connection, now: number): void;
  /** A node cannot serve now. */
  suspect(addr: string): void;
  /** A node redirects to another leader. */
  moved(connection: Connection, leader: string): void;
  /** A node has answered a request, after a suspicion. */
  recovered(addr: string): void;
  /** Has a step be done by then. */
  stepBy(due: number): void;
  /** Returns the nodes from which an answer is awaited. */
  unanswered(): string[];
}

/** Sends the requests of all calls, and decides what an answer or a refusal means for them. */
export class Requests implements PoolOwner {
  readonly pools = {
    stamps: new Pool(this, "stamps", [...kinds16, ...kinds64]),
    ahead: new Pool(this, "ahead"),
    leases: new Pool(this, "leases"),
    ids: new Pool(this, "ids", [kindIds]),
  };
  /** The calls that wait for the first connection to a leader. */
  readonly arrivals = new Pool(this, "stamps", [kindArrival]);
  readonly troubles = new Trouble();
  readonly queueMax: number;
  floor: Timestamp;
  /** Set while only nodes of another cluster answer. */
  foreign: IsotoneError | undefined;
  /** The next success is news. */
  suspected = true;
  closed = false;
  private flushing = false;

  constructor(
    readonly options: Options,
    private readonly routes: Routes,
  ) {
    this.queueMax = options.queueMax ?? 65_536;
    this.floor = options.floor ?? Timestamp.zero;
  }

  all(): Pool[] {
    return [...Object.values(this.pools), this.arrivals];
  }

  close(error: IsotoneError): void {
    this.closed = true;
    for (const pool of this.all()) pool.close(error);
  }

  schedule(): void {
    if (this.flushing) return;
    this.flushing = true;
    // After the calls that are about to be made, by those that have just been answered: so a burst becomes one batch.
    queueMicrotask(() =>
      process.nextTick(() => {
        this.flushing = false;
        this.flushAll();
      }),
    );
  }

  flushAll(): void {
    for (const pool of Object.values(this.pools)) if (pool.wants) this.flush(pool);
  }

  flush(pool: Pool): void {
    const now = performance.now();
    for (const connection of this.routes.connections(pool)) {
      const until = Math.max(pool.pausedUntil, connection.pausedUntil);
      if (now < until) this.routes.stepBy(until);
      if (now < until || !connection.isOpen) continue;
      while (connection.pending.length < windows[pool.use]) {
        const batch = pool.next();
        if (!batch) return;
        this.send(connection, batch, now);
      }
    }
  }

  private send(connection: Connection, batch: Batch, now: number): void {
    batch.floor = this.floor;
    batch.sentAt = now;
    connection.send(batch.line(this.carried(connection, batch)), batch);
    this.routes.sent(connection, now);
  }

  /** Returns the floor that a request carries. The first one on a connection carries the client's, later ones that of their call. */
  private carried(connection: Connection, batch: Batch): Timestamp {
    const { above } = batch.own;
    if (connection.answered && !above) return Timestamp.zero;
    return above && this.floor.before(above) ? above : this.floor;
  }

  answered(pool: Pool, connection: Connection, batch: Batch): void {
    pool.landed(batch);
    const { refusal } = batch;
    if (refusal) this.refused(pool, connection, batch, refusal);
    else this.succeeded(pool, connection, batch);
    this.schedule();
  }

  private succeeded(pool: Pool, connection: Connection, batch: Batch): void {
    const { addr } = connection;
    const { what } = batch.kind;
    if (what === "timestamps" || what === "timestamps64") {
      const error = this.inOrder(addr, batch);
      if (error) {
        pool.finish(batch, error);
        throw error; // ends the connection
      }
      const { above } = batch.own;
      if (above && !above.before(batch.first)) {
        pool.finish(batch, new IsotoneError("regressed", `${addr} issued a timestamp that is not above the floor ${above.toString()}`));
        return;
      }
    }
    const tookMs = performance.now() - batch.sentAt;
    connection.answered = true;
    connection.pauses = pool.quotaFailures = 0;
    pool.quota = undefined;
    pool.rtt.add(tookMs);
    if (this.options.hooks?.answered)
      this.emit((hooks) => hooks.answered?.({ addr, what, calls: batch.waiting, count: batch.count, tookMs }));
    pool.finish(batch);
    if (!this.suspected || pool.use === "ids") return;
    this.suspected = false;
    this.troubles.clear();
    this.routes.recovered(addr);
  }

  /** Raises the floor to the end of an answer. Returns an error if it is not above the floor of when its request was sent. */
  private inOrder(addr: string, batch: Batch): IsotoneError | undefined {
    if (batch.floor.before(batch.first)) {
      const { last } = batch;
      if (this.floor.before(last)) this.floor = last;
      return undefined;
    }
    const text = `${addr} issued timestamp ${batch.first.toString()} for a request sent after ${batch.floor.toString()} was received: the order is broken`;
    const error = new IsotoneError("internal", text);
    this.emit((hooks) => hooks.rejected?.(addr, error));
    return error;
  }

  private refused(pool: Pool, connection: Connection, batch: Batch, refusal: IsotoneError): void {
    const kind = refusal.code === batch.own.final ? "final" : classOf(refusal.code);
    if (kind === "unauthorized" && (connection.isKnown || connection.answered)) {
      // The node has forgotten who the client is. A new connection says it again.
      this.again(pool, batch, connection.addr, refusal);
      throw refusal;
    }
    if (kind === "final" || kind === "unauthorized") {
      connection.pauses = 0;
      pool.finish(batch, refusal);
      return;
    }
    pool.quota = kind === "quota" ? refusal : undefined;
    this.again(pool, batch, connection.addr, refusal);
    if (kind === "quota") pool.pausedUntil = performance.now() + quotaPause(refusal.retryAfterMs, pool.quotaFailures++);
    else if (kind === "redirect" && pool.use !== "ids" && refusal.leader !== connection.addr)
      this.routes.moved(connection, refusal.leader ?? "");
    else {
      if (pool.use !== "ids" && refusal.code !== "no_worker") this.routes.suspect(connection.addr); // it cannot serve now
      connection.pausedUntil = performance.now() + pauseAfter(connection.pauses++, pauseMax.retry);
    }
  }

  /** A connection has ended with a batch under way. */
  lost(pool: Pool, batch: Batch, addr: string, error: Error): void {
    pool.landed(batch);
    this.again(pool, batch, addr, error);
  }

  /** Sends a batch again. */
  private again(pool: Pool, batch: Batch, addr: string, error: Error): void {
    pool.requeue(batch);
    if (this.closed) return;
    this.troubles.note(addr, readable(error));
    this.emit((hooks) => hooks.retried?.(addr, error));
    this.schedule();
  }

  overdue(pool: Pool): IsotoneError {
    if (pool.quota)
      return new IsotoneError("quota_exceeded", `no answer in time: ${pool.quota.message}`, { retryAfterMs: pool.quota.retryAfterMs });
    if (this.foreign) return new IsotoneError("wrong_cluster", `no other node answers in time: ${this.foreign.message}`);
    return new IsotoneError("deadline_exceeded", `no answer in time${this.trouble()}`);
  }

  trouble(): string {
    return this.troubles.text(this.routes.unanswered());
  }

  /** Calls a hook. What it throws is not for the call at hand. */
  emit(call: (hooks: Hooks) => void): void {
    try {
      if (this.options.hooks) call(this.options.hooks);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
  }
}
