import type { Socket } from "node:net";
import { pauseMax } from "./backoff.js";
import { Batch } from "./batch.js";
import { Connection, type Owner, type Pending, RefusedClient } from "./connection.js";
import { IsotoneError, classOf, decodeRefusal, readable } from "./errors.js";
import type { Options } from "./options.js";
import type { Pool } from "./pool.js";
import { Requests, type Routes } from "./requests.js";
import { type Value, type View, readView } from "./resp.js";
import { Search, type Use } from "./search.js";

/** A connection may be silent for so many times the answer timeout, but at least for so long, while the leader answers on another one. */
const giveUpFactor = 10;
const giveUpMin = 1000;
/** For how long a leader may hold a request whose floor is ahead of its clock. */
const heldMax = 10_000;
const leaderUses = ["stamps", "ahead", "leases"] as const;

interface Host {
  why?: IsotoneError; // with the outcomes foreign and refuses
  readonly connections: Map<Use, Connection>;
}

/**
 * Keeps a client connected: it knows the members, finds the leader, opens and closes connections, sends batches over them, and decides what a refusal
 * means for a request. What to do about the leader, its search decides. It is level-triggered: a step compares the state with what it should be.
 */
export class Router implements Owner, Routes {
  readonly search: Search;
  readonly requests: Requests;
  readonly sockets = new Set<Socket>();
  readonly dialTimeoutMs: number;
  cluster: string;
  private readonly hosts = new Map<string, Host>();
  private readonly used = new Set<Use>(["stamps"]);
  private idTurn = 0;
  private isUsed = false; // a request was sent since the latest step, or is under way
  private woken = false;
  private timer: NodeJS.Timeout | undefined;
  private timerDue = Infinity;

  constructor(readonly options: Options) {
    this.dialTimeoutMs = options.dialTimeoutMs ?? 1000;
    this.requests = new Requests(options, this);
    this.cluster = options.cluster ?? "";
    this.search = new Search(options.addrs);
    this.wake();
  }

  /** Has connections of a use be opened from now on. */
  use(use: Use): void {
    if (this.used.has(use)) return;
    this.used.add(use);
    this.wake();
  }

  /** Ends all calls and connections. */
  close(): void {
    clearTimeout(this.timer);
    const error = new IsotoneError("closed", "the client is closed");
    this.requests.close(error);
    for (const connection of this.all()) connection.end(error);
  }

  // Steps

  private wake(): void {
    if (this.woken) return;
    this.woken = true;
    queueMicrotask(() => {
      this.woken = false;
      if (!this.requests.closed) this.step();
    });
  }

  /** Does what is due. */
  private step(): void {
    const now = performance.now();
    const watch = this.watch(now);
    const isUsed = this.isUsed;
    this.isUsed = watch < Infinity;
    const { addrs, wait } = this.search.ask(now);
    if (addrs.length > 0) this.forget();
    for (const addr of addrs) this.ask(addr);
    if (addrs.length === 0 && isUsed && this.search.refresh(now)) {
      this.forget();
      this.question(this.search.leader);
    }
    if (!this.search.suspected) for (const connection of this.all("ask")) if (!this.search.asking(connection.addr)) connection.drop();
    this.setTimer(Math.min(watch, wait, this.connectAll(now)));
    this.requests.flushAll();
  }

  private setTimer(wait: number): void {
    clearTimeout(this.timer);
    this.timerDue = performance.now() + wait;
    if (wait === Infinity) return;
    // The second timer has answers read that have arrived.
    this.timer = setTimeout(() => (this.timer = setTimeout(() => this.step(), 0)), Math.ceil(wait));
  }

  unanswered(): string[] {
    return [...this.all()].filter(({ isOpen, pending }) => !isOpen || pending.length > 0).map(({ addr }) => addr);
  }

  /** Has a step be done by then. */
  stepBy(due: number): void {
    if (due < this.timerDue) this.setTimer(due - performance.now());
  }

  /** Handles connections whose answers are late. Returns the wait until the next one may be, or Infinity if nothing is under way. */
  private watch(now: number): number {
    let next = Infinity;
    for (const connection of this.all()) {
      const oldest = connection.pending[0];
      if (!connection.isOpen || !oldest || connection.use === "ask") continue;
      const { late, lost } = this.patience(connection.use);
      const age = now - oldest.sentAt;
      if (age >= late && connection.use !== "ids") this.silent(connection, late);
      if (age >= lost) this.giveUp(connection);
      else next = Math.min(next, age < late ? late - age : Math.min(late, lost - age));
    }
    return next;
  }

  /** Returns after how long an answer is late, and after how long its connection is given up. */
  private patience(use: Exclude<Use, "ask">): { late: number; lost: number } {
    const late = this.requests.pools[use].rtt.timeout();
    switch (use) {
      case "stamps":
        return { late, lost: Infinity }; // see confirmed
      case "ahead":
        return { late: late + heldMax, lost: late + heldMax };
      case "leases":
        return { late, lost: Math.max(late, this.dialTimeoutMs) };
      case "ids":
        return { late, lost: late };
    }
  }

  private silent(connection: Connection, late: number): void {
    if (connection.addr !== this.search.leader) return;
    this.requests.troubles.note(connection.addr, `silent for ${Math.round(late)} ms`);
    this.doubt(connection.addr);
  }

  private doubt(addr: string): void {
    if (this.search.suspect(addr)) this.requests.suspected = true;
  }

  suspect(addr: string): void {
    this.doubt(addr);
    this.wake();
  }

  /** Closes a silent connection. Its requests are sent again on another one. */
  private giveUp(connection: Connection): void {
    if (connection.use !== "ask") this.requests.pools[connection.use].rtt.double();
    connection.isGivenUp = true;
    connection.end(new Error("silent for too long"));
  }

  // Hosts and connections

  private host(addr: string): Host {
    let host = this.hosts.get(addr);
    if (!host) this.hosts.set(addr, (host = { connections: new Map() }));
    return host;
  }

  private all(use?: Use): Connection[] {
    const list: Connection[] = [];
    for (const host of this.hosts.values()) {
      for (const connection of host.connections.values()) if (use === undefined || connection.use === use) list.push(connection);
    }
    return list;
  }

  private forget(): void {
    this.search.forget((addr) => (this.hosts.get(addr)?.connections.size ?? 0) > 0);
    const known = this.search.known();
    for (const [addr, host] of this.hosts) if (host.connections.size === 0 && !known.includes(addr)) this.hosts.delete(addr);
  }

  /** Opens the connections that are missing. Returns how long to wait before the next attempt. */
  private connectAll(now: number): number {
    let next = Infinity;
    const { leader } = this.search;
    for (const use of leaderUses) if (leader !== "" && this.used.has(use)) next = Math.min(next, this.connect(leader, use, now));
    if (this.used.has("ids")) for (const addr of this.search.members()) next = Math.min(next, this.connect(addr, "ids", now));
    return next;
  }

  private connect(addr: string, use: Use, now: number): number {
    const { connections } = this.host(addr);
    if (connections.has(use)) return Infinity;
    const wait = this.search.dialWait(addr, use, now);
    if (wait > 0) return wait;
    connections.set(use, new Connection(this, addr, use));
    return Infinity;
  }

  checkCluster(addr: string, cluster: string | null): void {
    if (cluster === "") throw new IsotoneError("no_leader", "the node does not know its cluster yet");
    if (cluster === null && this.options.cluster === undefined) return;
    if (cluster !== null) this.cluster ||= cluster;
    if (cluster === this.cluster) return;
    const says = cluster === null ? "does not report its cluster" : `belongs to cluster ${cluster}`;
    const error = new IsotoneError("wrong_cluster", `${addr} ${says}, want ${this.cluster}`);
    this.requests.emit((hooks) => hooks.rejected?.(addr, error));
    throw error;
  }

  opened(connection: Connection): void {
    const { addr, use } = connection;
    const isWanted = use === "ids" ? this.search.members().includes(addr) : addr === this.search.leader;
    if (use !== "ask") this.requests.pools[use].rtt.add(performance.now() - connection.begun);
    this.reported(addr);
    if (!isWanted) {
      connection.drop();
      return;
    }
    this.search.dialed(addr, use);
    const isNews = use === "stamps" && this.search.connecting;
    if (use === "stamps") this.attached(addr);
    if (isNews) this.question(addr); // it may have other members than the leader before it
    this.wake();
  }

  /** There is a connection for timestamps to the leader. */
  private attached(addr: string): void {
    if (this.search.connected()) {
      this.requests.emit((hooks) => hooks.leader?.(addr));
      this.requests.arrivals.release();
    }
    this.requests.schedule();
  }

  ended(connection: Connection, error: Error, lost: readonly Pending[]): void {
    const { addr, use } = connection;
    const host = this.host(addr);
    if (host.connections.get(use) === connection) host.connections.delete(use);
    if (use === "ask") {
      if (this.search.asking(addr)) this.questioned(addr, error);
    } else {
      for (const request of lost) if (request instanceof Batch) this.requests.lost(this.requests.pools[use], request, addr, error);
      if (!this.requests.closed) this.disconnected(connection, error);
    }
    if (!this.requests.closed) this.wake();
  }

  private disconnected(connection: Connection, error: Error): void {
    const { addr, use } = connection;
    const now = performance.now();
    if (connection.isDropped) return;
    if (!connection.wasOpen) {
      this.requests.troubles.note(addr, readable(error));
      this.reported(addr, error);
      this.failed(addr, use, this.search.dialPauseMax(now));
    } else if (!connection.answered || ((use === "ids" || use === "ahead") && connection.isGivenUp)) {
      this.failed(addr, use, pauseMax.retry); // otherwise a node that hangs up at once would be dialed without a pause
    } else if (use !== "ids") this.doubt(addr);
    if (use === "ids" && this.all("ids").length === 0) this.search.hurry("ids", now); // now every member is needed
  }

  /** The address cannot be reached, or its connections are unusable. The pause before the next attempt is longer where it is not urgent. */
  private failed(addr: string, use: Use, most: number): void {
    let pause = most;
    if (use === "ids" && this.search.outcome(addr) !== "refuses") {
      if (this.all("ids").some((connection) => connection.isOpen)) pause = pauseMax.spare;
      else if (this.search.leader !== "") this.question(this.search.leader); // there may be new members
    }
    if (this.search.failed(addr, use, pause, performance.now())) this.requests.suspected = true;
  }

  // Requests

  /** IDs come from the members in turn. */
  connections(pool: Pool): Connection[] {
    if (pool.use !== "ids") {
      const connection = this.hosts.get(this.search.leader)?.connections.get(pool.use);
      return connection ? [connection] : [];
    }
    const list = this.all("ids");
    const turn = list.length > 0 ? this.idTurn % list.length : 0;
    return [...list.slice(turn), ...list.slice(0, turn)];
  }

  sent(connection: Connection, now: number): void {
    if (connection.use === "ids") this.idTurn = this.all("ids").indexOf(connection) + 1;
    this.isUsed = true;
    this.stepBy(now + this.requests.pools[connection.use as Exclude<Use, "ask">].rtt.timeout());
  }

  recovered(addr: string): void {
    this.search.recovered(addr);
    this.wake();
  }

  moved(connection: Connection, leader: string): void {
    if (this.search.moved(connection.addr, leader, performance.now())) this.requests.suspected = true;
    this.followed();
    if (!connection.hasEnded) connection.end(new Error("another node leads"));
  }

  // Questions

  private question(addr: string): void {
    if (this.search.question(addr, performance.now())) this.ask(addr);
  }

  /** Asks a node for the leader and the members, on a connection for that. It is kept for the next question of the same search. */
  private ask(addr: string): void {
    const { connections } = this.host(addr);
    const kept = connections.get("ask");
    if (kept) kept.ask();
    else connections.set("ask", new Connection(this, addr, "ask"));
  }

  viewed(connection: Connection, v: Value): void {
    const { addr } = connection;
    if (v.kind === "-") {
      const refusal = decodeRefusal(v.text);
      this.questioned(addr, asRefusedClient(refusal));
      if (classOf(refusal.code) !== "retry") connection.end(refusal);
      this.wake();
      return;
    }
    const view = readView(v, addr);
    this.questioned(addr);
    this.requests.pools.stamps.rtt.add(performance.now() - connection.askedAt);
    this.heard(connection, view);
    this.wake();
  }

  /** A question has ended. */
  private questioned(addr: string, error?: Error): void {
    this.search.answered(addr);
    if (error && !this.requests.closed) this.requests.troubles.note(addr, readable(error));
    this.reported(addr, error);
  }

  /** Takes in what a node says about the cluster. */
  private heard(connection: Connection, view: View): void {
    const { addr } = connection;
    const verdict = this.search.heard(addr, view, performance.now());
    const members = this.search.members();
    for (const other of this.all("ids")) if (!members.includes(other.addr)) other.drop();
    if (verdict === "confirmed") this.confirmed(addr);
    if (verdict === "followed") this.followed();
    if (addr === view.leader && addr === this.search.leader && this.search.suspected) this.adopt(connection);
  }

  /** Makes the connection on which the leader was asked the one for timestamps, so that the first request does not wait for a new one. */
  private adopt(connection: Connection): void {
    const { addr } = connection;
    const { connections } = this.host(addr);
    if (connections.has("stamps") || this.search.dialWait(addr, "stamps", performance.now()) > 0) return;
    connections.delete("ask");
    connections.set("stamps", connection);
    connection.use = "stamps";
    this.attached(addr);
  }

  /** The leader says that it leads. Its silent connections are broken then. */
  private confirmed(leader: string): void {
    const limit = Math.max(giveUpFactor * this.requests.pools.stamps.rtt.timeout(), giveUpMin);
    const connection = this.host(leader).connections.get("stamps");
    if (!connection?.isOpen) return;
    const oldest = connection.pending[0];
    if (oldest && performance.now() - oldest.sentAt > limit) this.giveUp(connection);
    else this.search.confirm();
  }

  /** There is another leader. */
  private followed(): void {
    for (const use of leaderUses) {
      for (const connection of this.all(use)) if (connection.addr !== this.search.leader) connection.drop();
    }
    this.wake();
  }

  // Who refuses this client, and who belongs to another cluster

  /** Takes in the outcome of an exchange with a node. */
  private reported(addr: string, error?: Error): void {
    const host = this.host(addr);
    if (error instanceof RefusedClient) host.why = error.why;
    else if (error instanceof IsotoneError && error.code === "wrong_cluster") host.why = error;
    const isForeign = error instanceof IsotoneError && error.code === "wrong_cluster";
    const answered = error === undefined || error instanceof IsotoneError;
    const outcome = error instanceof RefusedClient ? "refuses" : isForeign ? "foreign" : answered ? "ours" : "unreachable";
    this.search.reported(addr, outcome, performance.now());
    this.requests.foreign = this.foreignError();
    if (this.requests.closed) return;
    for (const pool of this.requests.all()) {
      const { why, known } = this.refusal(pool);
      if (known) pool.refused = why;
      if (known && why) pool.fail(why);
    }
  }

  private foreignError(): IsotoneError | undefined {
    let why: IsotoneError | undefined;
    for (const [addr, host] of this.hosts) {
      const outcome = this.search.outcome(addr);
      if (outcome === "ours" || outcome === "refuses") return undefined;
      if (outcome === "foreign") why = host.why;
    }
    return why;
  }

  /** Returns why there can be no connection for a pool: the leader refuses this client or, while none is known and for IDs, every node that answers does. */
  private refusal(pool: Pool): { why?: IsotoneError | undefined; known: boolean } {
    if (this.all(pool.use).some((connection) => connection.isOpen)) return { known: true };
    const { leader } = this.search;
    const addrs = pool.use === "ids" ? this.search.members() : leader !== "" ? [leader] : this.search.known();
    let why: IsotoneError | undefined;
    let known = true;
    for (const addr of addrs) {
      const outcome = this.search.outcome(addr);
      const isTried = this.search.asking(addr) || this.hosts.get(addr)?.connections.has(pool.use);
      if (outcome === "ours" || outcome === "foreign") return { known: true };
      if (outcome === "refuses") why = this.hosts.get(addr)?.why;
      else if (isTried || !this.hosts.has(addr)) known = false;
    }
    return { why, known };
  }
}

function asRefusedClient(refusal: IsotoneError): Error {
  return ["unauthorized", "forbidden", "invalid_argument"].includes(refusal.code) ? new RefusedClient(refusal) : refusal;
}
