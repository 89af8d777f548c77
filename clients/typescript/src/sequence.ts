import { type Code, IsotoneError } from "./errors.js";
import type { Layout } from "./snowflake.js";

/** A range of unix milliseconds in which only one process makes IDs of a worker: from `start` up to, and without, `end`. */
export interface Lease {
  readonly start: number;
  readonly end: number;
}

/** Why there are no IDs. */
export type Reason =
  "exhausted" | "lease_ended" | "lease_not_begun" | "batch" | "clock_behind" | "clock_before_layout" | "clock_after_layout";

const texts: Readonly<Record<Reason, readonly [Code, string]>> = {
  exhausted: ["overloaded", "the IDs of this millisecond, and of those that may be borrowed, are used up"],
  lease_ended: ["overloaded", "the lease of the worker has ended"],
  lease_not_begun: ["overloaded", "the lease of the worker has not begun"],
  batch: ["invalid_argument", "more IDs than there can be at once"],
  clock_behind: ["clock", "the system clock is behind the IDs by more than may be borrowed"],
  clock_before_layout: ["clock", "the system clock is before the epoch of the layout"],
  clock_after_layout: ["clock", "the system clock is after the last millisecond of the layout"],
};

/** Returns the error that a reason stands for. */
export function reasonError(reason: Reason): IsotoneError {
  return new IsotoneError(...texts[reason]);
}

/**
 * The IDs of one worker. Nothing here reads a clock: a caller says what it shows. Without the worker an ID is a *number*: milliseconds since
 * the epoch, then the sequence. The only state is the next number, which only grows.
 */
export class Sequence {
  private readonly bits: bigint;
  private readonly gap: bigint; // worker bits
  private readonly workerPart: bigint;
  private readonly first: bigint;
  private readonly sequenceMask: bigint;
  private readonly lastMs: number;
  private next: bigint;
  private end: number;
  private limit: bigint; // the end as a number: numbers stay below it
  private stopped = false;

  /** Without a lease, all milliseconds of the layout may be used. */
  constructor(
    readonly layout: Layout,
    readonly worker: number,
    lease: Lease | null,
    private readonly aheadMaxMs: number,
  ) {
    this.bits = BigInt(layout.sequenceBits);
    this.gap = BigInt(layout.datacenterBits + layout.workerBits);
    this.workerPart = BigInt(worker) << this.bits;
    this.sequenceMask = (1n << this.bits) - 1n;
    this.lastMs = layout.epoch + Number(layout.timeMax);
    this.first = BigInt(Math.max((lease?.start ?? 0) - layout.epoch, 0)) << this.bits;
    this.next = this.first;
    this.end = lease?.end ?? Infinity;
    this.limit = this.limitOf(this.end);
  }

  /** Returns the next `count` IDs when the clock reads `now`, or why there are none; then none is used up. They are consecutive. */
  take(now: number, count: number): bigint[] | Reason {
    const at = this.admit(now, BigInt(count));
    if (typeof at === "string") return at;
    const ids = new Array<bigint>(count);
    for (let i = 0; i < count; i++) {
      const number = at + BigInt(i);
      ids[i] = ((number >> this.bits) << (this.bits + this.gap)) | this.workerPart | (number & this.sequenceMask);
    }
    this.next = at + BigInt(count);
    return ids;
  }

  /** Moves the end of the lease, if that is later. */
  extend(end: number): void {
    if (end <= this.end) return;
    this.end = end;
    this.limit = this.limitOf(end);
  }

  /** Ends the sequence for ever. Returns the first millisecond from which on no ID was made: the beginning of the lease if there was none. */
  stop(): number {
    this.stopped = true;
    return this.layout.epoch + Number((this.next + this.sequenceMask) >> this.bits);
  }

  /** Returns the first of the numbers to take, or why there are none. */
  private admit(now: number, n: bigint): bigint | Reason {
    if (n > (min(BigInt(this.aheadMaxMs), this.layout.timeMax) + 1n) << this.bits) return "batch";
    if (this.stopped) return "lease_ended";
    if (now < this.layout.epoch) return "clock_before_layout";
    if (now > this.lastMs) return "clock_after_layout";
    const ms = BigInt(now - this.layout.epoch);
    const ahead = (min(ms + BigInt(this.aheadMaxMs), this.layout.timeMax) + 1n) << this.bits;
    if (this.next === this.first && this.next >= ahead) return "lease_not_begun";
    if (this.next > ahead) return "clock_behind";
    const floor = ms << this.bits;
    const at = this.next > floor ? this.next : floor;
    if (at + n > this.limit) return this.limit > this.layout.timeMax << this.bits ? "clock_after_layout" : "lease_ended";
    return at + n > ahead ? "exhausted" : at;
  }

  private limitOf(end: number): bigint {
    const ms = end === Infinity ? this.layout.timeMax + 1n : BigInt(Math.max(end - this.layout.epoch, 0));
    return min(ms, this.layout.timeMax + 1n) << this.bits;
  }
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
