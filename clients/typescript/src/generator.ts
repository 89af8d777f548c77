import { randomBytes } from "node:crypto";
import { pauseMax } from "./backoff.js";
import { type Code, IsotoneError, classOf, readable } from "./errors.js";
import { type CallOptions, isWithin } from "./options.js";
import { type Grant, type Value, command, readGrant, readOk } from "./resp.js";
import { type Lease, type Reason, Sequence, reasonError } from "./sequence.js";
import type { Layout } from "./snowflake.js";

/** How long closing a generator tries to return its lease. */
const releaseTimeout = 1000;
/** How often a call that waits looks again, in milliseconds: while IDs of this millisecond are used up, and while the clock is behind. */
const exhaustedPoll = 1;
const behindPoll = 10;

export interface GeneratorOptions {
  /** The length of a lease, 100 to 3,600,000 ms; 30,000 by default. A killed process blocks its worker for that long. */
  readonly leaseMs?: number | undefined;
  /** This worker, and no other. The lowest quarter of the workers is for nodes only. */
  readonly worker?: number | undefined;
  /** The clock of the IDs, in unix milliseconds; the system's by default. */
  readonly now?: (() => number) | undefined;
  /** How far the time of IDs may be ahead of the clock, in milliseconds, up to an hour; 1,000 by default. */
  readonly aheadMaxMs?: number | undefined;
}

type Settings = { readonly [K in "leaseMs" | "aheadMaxMs"]: number } & { readonly now: () => number; readonly worker: number | undefined };

/** Has the leader execute a command. A refusal with the code `final` is not retried. */
type Send = <T>(line: string, read: (v: Value) => T, options: CallOptions, final?: Code) => Promise<T>;

/** A grant, the session in which it was requested, and what makes its IDs. */
interface Held extends Grant {
  readonly session: string;
  readonly sequence: Sequence;
}

/**
 * Makes IDs in this process: the cluster leases it a worker, and it renews the lease. IDs are unique even if clocks are wrong, as two leases of a
 * worker never share a millisecond. {@link Client.generator} makes it.
 */
export class Generator implements AsyncDisposable {
  private held!: Held;
  private session = newSession();
  private why: unknown; // of the latest attempt to renew
  private renewing: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;
  private gaveUpAt = -Infinity;
  private readonly ended = new AbortController();
  private readonly waiting = new Set<() => void>(); // calls

  private constructor(
    private readonly send: Send,
    private readonly isClosed: () => boolean,
    private readonly options: Settings,
  ) {}

  /** Use {@link Client.generator}. */
  static async lease(send: Send, isClosed: () => boolean, o: GeneratorOptions, until: CallOptions): Promise<Generator> {
    const settings = { leaseMs: o.leaseMs ?? 30_000, aheadMaxMs: o.aheadMaxMs ?? 1000, now: o.now ?? Date.now, worker: o.worker };
    const isGood =
      isWithin(settings.leaseMs, 100, 3_600_000) && isWithin(settings.aheadMaxMs, 0, 3_600_000) && isWithin(o.worker ?? 0, 0, 2 ** 30 - 1);
    if (!isGood)
      throw new IsotoneError("invalid_argument", "want a lease of 100 to 3600000 ms, aheadMaxMs of 0 to 3600000, and a worker from 0 on");
    const generator = new Generator(send, isClosed, settings);
    await generator.request(until);
    generator.renewIn(settings.leaseMs / 3);
    return generator;
  }

  /** The worker. It changes only after a lease was lost or revoked, or the clock went back. */
  get worker(): number {
    return this.held.worker;
  }

  /** The milliseconds of IDs that are leased. */
  get lease(): Lease {
    return { start: this.held.start, end: this.held.end };
  }

  /** The layout of the IDs, which is the cluster's. */
  get layout(): Layout {
    return this.held.layout;
  }

  /** Returns the next ID without waiting, or throws; then none is used up. */
  tryNext(): bigint {
    return this.tryNextN(1)[0] as bigint;
  }

  /** Returns the next `count` IDs, which are consecutive, without waiting, or throws; then none is used up. */
  tryNextN(count: number): bigint[] {
    const ids = this.take(count);
    if (typeof ids === "string") throw this.ended.signal.aborted ? closed() : reasonError(ids);
    return ids;
  }

  /** Returns the next ID. It waits while there is none, for instance while the lease has ended and is not renewed yet. */
  async next(options: CallOptions = {}): Promise<bigint> {
    return (await this.nextN(1, options))[0] as bigint;
  }

  /** Returns the next `count` IDs, which are consecutive, and waits as {@link Generator.next} does. */
  async nextN(count: number, options: CallOptions = {}): Promise<bigint[]> {
    const due = performance.now() + (options.deadlineMs ?? Infinity);
    for (;;) {
      if (options.signal?.aborted) throw new IsotoneError("canceled", "the call was canceled", { cause: options.signal.reason });
      const ids = this.take(count);
      if (typeof ids !== "string") return ids;
      if (this.ended.signal.aborted || this.isClosed()) throw closed();
      const poll = this.pollAfter(ids);
      if (poll === undefined) throw reasonError(ids);
      const left = due - performance.now();
      if (left <= 0) throw this.overdue(ids);
      await this.wait(Math.min(poll, left), options.signal);
    }
  }

  /** Returns how soon a call that waits is to look again, or undefined if it does not wait for that. */
  private pollAfter(reason: Reason): number | undefined {
    if (reason === "exhausted") return exhaustedPoll;
    if (reason === "lease_not_begun" || (reason === "clock_behind" && !this.isFixed)) return behindPoll;
    return reason === "lease_ended" ? Infinity : undefined;
  }

  private get isFixed(): boolean {
    return this.options.worker !== undefined;
  }

  private take(count: number): bigint[] | Reason {
    if (!isWithin(count, 1, 2 ** 24)) throw new IsotoneError("invalid_argument", `${count} IDs: want 1 to ${2 ** 24}`);
    const ids = this.held.sequence.take(this.options.now(), count);
    if ((ids === "clock_behind" || ids === "lease_not_begun") && !this.isFixed) this.behind();
    return ids;
  }

  /** Waits for a time, until the lease changes, or until the signal is aborted. */
  private wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.waiting.delete(done);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timer = ms < Infinity ? setTimeout(done, Math.min(Math.ceil(ms), 2 ** 31 - 1)) : undefined;
      this.waiting.add(done);
      signal?.addEventListener("abort", done);
    });
  }

  private overdue(reason: Reason): IsotoneError {
    const why = this.why === undefined ? reasonError(reason).message : `the worker's lease: ${readable(this.why)}`;
    return new IsotoneError("deadline_exceeded", `no ID in time; ${why}`);
  }

  /** Has calls that wait look again. */
  private wake(): void {
    for (const done of [...this.waiting]) done();
  }

  // The lease

  private renewIn(ms: number): void {
    clearTimeout(this.timer);
    if (!this.ended.signal.aborted && !this.isClosed()) this.timer = setTimeout(() => this.renew(), Math.ceil(ms)).unref();
  }

  private renew(): void {
    clearTimeout(this.timer);
    const third = this.options.leaseMs / 3;
    this.renewing ??= this.request({ deadlineMs: third, signal: this.ended.signal })
      .then(
        () => third,
        (error: unknown) => {
          this.why = error;
          const isFinal = error instanceof IsotoneError && classOf(error.code) === "final" && error.code !== "deadline_exceeded";
          return Math.min(third, isFinal ? pauseMax.refused : pauseMax.retry);
        },
      )
      .then((ms) => {
        this.renewing = undefined;
        this.renewIn(ms);
        this.wake();
      });
  }

  /**
   * The clock is behind the IDs of the lease, or behind its beginning, which may last for as long as it had been ahead: another worker is leased, in
   * another session, as its own would get the same. A worker that was used ahead of the clock is free only when the clock has been there, so a clock
   * that keeps jumping must not use up many.
   */
  private behind(): void {
    const pause = Math.min(this.options.leaseMs / 3, pauseMax.refused);
    if (this.renewing || this.session !== this.held.session || performance.now() - this.gaveUpAt < pause) return;
    this.session = newSession();
    this.gaveUpAt = performance.now();
    this.renew();
  }

  /** Requests a lease or its renewal, which is the same command, and uses it. */
  private async request(until: CallOptions): Promise<void> {
    const { worker, leaseMs, now } = this.options;
    const { session } = this;
    const fixed = worker === undefined ? [] : ["FIXED", worker.toString()];
    const line = command("WORKER", "LEASE", session, Math.trunc(now()).toString(), Math.trunc(leaseMs).toString(), ...fixed);
    const isRenewal = (this.held as Held | undefined) !== undefined && !this.isFixed;
    try {
      this.follow(await this.send(line, readGrant, until, isRenewal ? "no_worker" : undefined), session);
      this.why = undefined;
    } catch (error) {
      // A cluster grants a session nothing else while its revoked lease lasts.
      if (isRenewal && error instanceof IsotoneError && error.code === "no_worker") this.session = newSession();
      throw error;
    }
  }

  /**
   * Switches to a grant. One of the same worker that begins no later than the known one ends extends it: had there been another holder in between, it
   * would begin later. Any other needs a new sequence, and the rest of the old lease is returned.
   */
  private follow(grant: Grant, session: string): void {
    const old = this.held as Held | undefined;
    if (this.ended.signal.aborted) return;
    if (old?.worker === grant.worker && old.layout.equals(grant.layout) && grant.start <= old.end) {
      old.sequence.extend(grant.end);
      this.held = { ...old, start: grant.start, end: Math.max(old.end, grant.end), session };
    } else {
      this.held = { ...grant, session, sequence: new Sequence(grant.layout, grant.worker, grant, this.options.aheadMaxMs) };
      const used = old?.sequence.stop();
      if (old && used !== undefined && old.session !== session) void this.release(old, used).catch(() => undefined); // or it ends by itself
    }
    this.wake();
  }

  private async release(of: Held, used: number): Promise<void> {
    const line = command("WORKER", "RELEASE", of.session, of.worker.toString(), of.start.toString(), used.toString());
    await this.send(line, readOk, { deadlineMs: releaseTimeout });
  }

  /** Ends the generator and returns the rest of its lease to the cluster. If that fails within a second, the lease expires later. */
  async close(): Promise<void> {
    if (this.ended.signal.aborted) return;
    this.ended.abort();
    clearTimeout(this.timer);
    const used = this.held.sequence.stop();
    this.wake();
    await this.renewing;
    await this.release(this.held, used).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function closed(): IsotoneError {
  return new IsotoneError("closed", "the generator is closed");
}

/** Returns 16 random hexadecimal digits, not all 0. */
function newSession(): string {
  const session = randomBytes(8);
  session[7] = (session[7] ?? 0) | 1;
  return session.toString("hex");
}
