import { Estimate } from "./backoff.js";
import { Batch, Call, type Kind } from "./batch.js";
import type { Connection } from "./connection.js";
import { IsotoneError } from "./errors.js";
import type { CallOptions } from "./options.js";
import type { Use } from "./search.js";

/** Requests of their own that wait: each is a round trip, so that more would wait for long. */
const aloneMax = 1024;

/** The open batch of a kind. */
interface Queue {
  readonly kind: Kind;
  open: Batch;
  underWay: number; // requests
}

/** What a pool needs of the client. */
export interface PoolOwner {
  readonly queueMax: number;
  /** Handles the answer to a batch. */
  answered(pool: Pool, connection: Connection, batch: Batch): void;
  /** Sends what waits, soon: after all calls that are about to be made. */
  schedule(): void;
  /** Sends what waits, now. */
  flush(pool: Pool): void;
  /** Returns the error of a call whose deadline has come. */
  overdue(pool: Pool): IsotoneError;
  /** What has failed lately, to append to a message. */
  trouble(): string;
}

/**
 * Collects calls into batches, for one use of connections. A batch is sent as soon as a connection is free, so batches grow with the load, and no call
 * waits for one to fill. Calls made while a request of their kind is under way share the next one.
 */
export class Pool {
  readonly rtt = new Estimate();
  /** The latest refusal because of a quota, undefined after a success. Nothing is sent before pausedUntil. */
  quota: IsotoneError | undefined;
  quotaFailures = 0;
  pausedUntil = 0;
  /** Why there can be no connection: calls fail at once. */
  refused: IsotoneError | undefined;
  private readonly queues = new Map<Kind, Queue>();
  private ready: Batch[] = []; // to be sent again, full, or of a call of its own
  private closed: IsotoneError | undefined;
  private readonly timed = new Set<Batch>(); // those with deadlines
  private timer: NodeJS.Timeout | undefined; // for the nearest deadline
  private timerDue = Infinity;
  private readonly signals = new Map<AbortSignal, Watch>();

  constructor(
    private readonly owner: PoolOwner,
    readonly use: Use,
    kinds: readonly Kind[] = [],
  ) {
    for (const kind of kinds) this.queues.set(kind, { kind, open: this.batch(kind), underWay: 0 });
  }

  private batch(kind: Kind, own?: Batch["own"]): Batch {
    return new Batch(kind, (connection, batch) => this.owner.answered(this, connection, batch), own);
  }

  /** Makes a call that shares requests: `count` numbers of a kind, of which `pick` makes the result. */
  call<T>(kind: Kind, count: number, pick: (b: Batch, at: number, count: number) => T, options: CallOptions): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call = new Call(count, pick, resolve, reject, options);
      const why = this.admit(call) ?? this.join(call, kind);
      if (why) call.fail(why);
    });
  }

  /** Makes a call whose request no other shares. */
  callAlone<T>(kind: Kind, count: number, pick: (b: Batch) => T, options: CallOptions, own: Batch["own"]): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call = new Call(count, pick, resolve, reject, options);
      let why = this.admit(call);
      if (!why && this.waitingReady() >= aloneMax) why = this.crowded();
      if (why) {
        call.fail(why);
        return;
      }
      const batch = this.batch(kind, own);
      this.ready.push(batch);
      this.enter(call, batch);
    });
  }

  /** Returns why a call fails at once. */
  private admit(call: Call): IsotoneError | undefined {
    const { deadlineMs, signal } = call.options;
    if (this.closed ?? this.refused) return this.closed ?? this.refused;
    if (signal?.aborted) return canceled(signal);
    if (deadlineMs === undefined) return undefined;
    if (Number.isNaN(deadlineMs)) return new IsotoneError("invalid_argument", "deadlineMs: want a number of milliseconds");
    call.due = performance.now() + deadlineMs;
    return deadlineMs <= 0 ? this.owner.overdue(this) : undefined;
  }

  /** Has a call join the open batch of its kind. Returns why it cannot. */
  private join(call: Call, kind: Kind): IsotoneError | undefined {
    const queue = this.queues.get(kind);
    if (!queue) throw new Error(`no queue for ${kind.what}`);
    if (queue.open.waiting >= this.owner.queueMax) this.owner.flush(this);
    if (queue.open.waiting + this.waitingReady() >= this.owner.queueMax) return this.crowded();
    if (queue.open.count + call.count > kind.countMax) {
      this.ready.push(queue.open);
      queue.open = this.batch(kind);
    }
    this.enter(call, queue.open);
    return undefined;
  }

  private waitingReady(): number {
    if (this.ready.length === 0) return 0;
    this.ready = this.ready.filter((batch) => batch.waiting > 0);
    return this.ready.reduce((sum, batch) => sum + batch.waiting, 0);
  }

  private crowded(): IsotoneError {
    return new IsotoneError("overloaded", `too many calls are waiting${this.owner.trouble()}`);
  }

  private enter(call: Call, batch: Batch): void {
    batch.join(call);
    if (call.due < batch.due) {
      batch.due = call.due;
      this.timed.add(batch);
      if (call.due < this.timerDue) this.setTimer(call.due);
    }
    if (call.options.signal) this.watch(call.options.signal, call, batch);
    if (batch.waiting === 1) this.owner.schedule();
  }

  /** Returns the next batch to send: one that waits already or, unless its kind has a request under way, an open one. */
  next(): Batch | undefined {
    for (let batch = this.ready.shift(); batch; batch = this.ready.shift()) {
      if (batch.waiting > 0) return this.sent(batch);
      this.finish(batch); // all its calls have ended
    }
    for (const queue of this.queues.values()) {
      if (queue.open.waiting === 0 || (queue.underWay > 0 && this.use !== "ids")) continue;
      const batch = queue.open;
      queue.open = this.batch(queue.kind);
      return this.sent(batch);
    }
    return undefined;
  }

  private sent(batch: Batch): Batch {
    batch.isUnderWay = true;
    const queue = this.queues.get(batch.kind);
    if (queue) queue.underWay++;
    return batch;
  }

  /** A request is not under way any more. */
  landed(batch: Batch): void {
    batch.isUnderWay = false;
    const queue = this.queues.get(batch.kind);
    if (queue) queue.underWay--;
  }

  /** Reports whether there may be something to send. */
  get wants(): boolean {
    if (this.ready.length > 0) return true;
    for (const queue of this.queues.values()) if (queue.open.waiting > 0) return true;
    return false;
  }

  /** Sends a batch again that got no answer. That is safe: no call has received the numbers that earlier attempts may have got. */
  requeue(batch: Batch): void {
    batch.refusal = undefined;
    if (this.closed) this.finish(batch, this.closed);
    else if (batch.waiting > 0) this.ready.push(batch);
    else this.finish(batch);
  }

  /** Ends the calls of a batch. */
  finish(batch: Batch, error?: Error): void {
    this.timed.delete(batch);
    if (this.signals.size > 0) for (const call of batch.calls) this.unwatch(call);
    batch.finish(error);
  }

  /** Has the calls that wait succeed. */
  release(): void {
    this.fail();
  }

  /** Fails the calls that wait to be sent. */
  fail(error?: Error): void {
    const failed = [...this.ready.splice(0), ...[...this.queues.values()].map((queue) => queue.open)];
    for (const queue of this.queues.values()) queue.open = this.batch(queue.kind);
    for (const batch of failed) this.finish(batch, error);
  }

  /** Fails all waiting and later calls. Those under way fail when their connection ends. */
  close(error: IsotoneError): void {
    this.closed = error;
    clearTimeout(this.timer);
    this.fail(error);
  }

  private setTimer(due: number): void {
    clearTimeout(this.timer);
    this.timerDue = due;
    // The second timer has answers read that have arrived. What keeps a process alive are connections, and the search for the leader.
    const late = (): void => void (this.timer = setTimeout(() => this.expire(), 0).unref());
    this.timer = setTimeout(late, Math.min(Math.ceil(due - performance.now()), 2 ** 31 - 1)).unref();
  }

  private expire(): void {
    const now = performance.now();
    let next = Infinity;
    for (const batch of this.timed) {
      if (batch.due <= now) batch.expire(now, (call) => this.overdue(call));
      if (batch.due === Infinity) this.timed.delete(batch);
      next = Math.min(next, batch.due);
    }
    this.timerDue = Infinity;
    if (next < Infinity) this.setTimer(next);
  }

  private overdue(call: Call): Error {
    this.unwatch(call);
    return this.owner.overdue(this);
  }

  /** Has a call fail when a signal is aborted. Calls that share a signal share its listener. */
  private watch(signal: AbortSignal, call: Call, batch: Batch): void {
    let watch = this.signals.get(signal);
    if (!watch) {
      const abort = (): void => this.abort(signal);
      watch = { calls: new Map(), abort };
      this.signals.set(signal, watch);
      signal.addEventListener("abort", abort, { once: true });
    }
    watch.calls.set(call, batch);
  }

  private unwatch(call: Call): void {
    const signal = call.options.signal;
    if (!signal) return;
    const watch = this.signals.get(signal);
    if (!watch?.calls.delete(call) || watch.calls.size > 0) return;
    signal.removeEventListener("abort", watch.abort);
    this.signals.delete(signal);
  }

  private abort(signal: AbortSignal): void {
    const watch = this.signals.get(signal);
    this.signals.delete(signal);
    for (const [call, batch] of watch?.calls ?? []) {
      if (call.ended) continue;
      batch.leave(call, canceled(signal));
    }
  }
}

interface Watch {
  readonly calls: Map<Call, Batch>;
  readonly abort: () => void;
}

function canceled(signal: AbortSignal): IsotoneError {
  return new IsotoneError("canceled", "the call was canceled", { cause: signal.reason });
}
