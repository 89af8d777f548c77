import { type Code, type IsotoneError, Malformed, decodeRefusal } from "./errors.js";
import type { Connection, Pending } from "./connection.js";
import type { CallOptions } from "./options.js";
import { type Parser, type ReadMode, type Value, idsRequest, limits, readIds, readTimestamp64, timestampsRequest } from "./resp.js";
import { Timestamp, timestamps64Max, timestampsMax } from "./timestamp.js";

/** The most IDs of one request: as many as a worker of the usual layout has in a millisecond. */
export const idsPerRequest = 4096;

/** What a request asks for. */
export interface Kind {
  readonly what: "timestamps" | "timestamps64" | "ids" | "lease";
  readonly mode?: ReadMode | undefined;
  /** The most numbers of one request. */
  readonly countMax: number;
}

const modes = [undefined, "quorum", "lease"] as const;
export const kinds16 = modes.map((mode): Kind => ({ what: "timestamps", mode, countMax: timestampsMax }));
export const kinds64 = modes.map((mode): Kind => ({ what: "timestamps64", mode, countMax: timestamps64Max }));
export const kindIds: Kind = { what: "ids", countMax: idsPerRequest };
export const kindLease: Kind = { what: "lease", countMax: 1 };
/** Calls that wait for a leader. They are never sent. */
export const kindArrival: Kind = { what: "lease", countMax: Infinity };

/** A call that waits for a batch. Its numbers are `count` of the answer, from `at` on. */
export class Call {
  at = 0;
  ended = false;
  due = Infinity;

  constructor(
    readonly count: number,
    private readonly pick: (batch: Batch, at: number, count: number) => unknown,
    private readonly resolve: (value: never) => void,
    private readonly reject: (error: Error) => void,
    readonly options: CallOptions,
  ) {}

  succeed(batch: Batch): void {
    this.ended = true;
    this.resolve(this.pick(batch, this.at, this.count) as never);
  }

  fail(error: Error): void {
    this.ended = true;
    this.reject(error);
  }
}

/**
 * One request and the calls that it answers. While it is open, calls join it. It is sealed before it is sent, so every call gets numbers that were
 * requested after it began, even if the request is sent again.
 */
export class Batch implements Pending {
  calls: Call[] = [];
  /** Calls that still wait. */
  waiting = 0;
  isUnderWay = false;
  count = 0;
  /** The earliest deadline of its calls. */
  due = Infinity;
  sentAt = 0;
  /** The client's floor when the request was sent. */
  floor = Timestamp.zero;

  // The answer, once it was taken: one of these, or a refusal.
  first = Timestamp.zero;
  first64 = 0n;
  ids: bigint[] = [];
  value: unknown;
  refusal: IsotoneError | undefined;

  constructor(
    readonly kind: Kind,
    /** Takes the batch when it was answered. */
    private readonly answered: (connection: Connection, batch: Batch) => void,
    /** What is sent for a lease, how its answer is read, and the refusal that is final; or the floor of the only call. */
    readonly own: {
      readonly line?: string;
      readonly read?: (v: Value) => unknown;
      readonly final?: Code | undefined;
      readonly above?: Timestamp;
    } = {},
  ) {}

  join(call: Call): void {
    call.at = this.count;
    this.count += call.count;
    this.calls.push(call);
    this.waiting++;
  }

  /** The largest timestamp of the answer. */
  get last(): Timestamp {
    return this.kind.what === "timestamps64" ? Timestamp.from64(this.first64 + BigInt(this.count - 1)) : this.first.plus(this.count - 1);
  }

  /** Writes the request; `carried` is the floor that it carries. */
  line(carried: Timestamp): string {
    const { what, mode } = this.kind;
    if (what === "ids") return idsRequest(this.count);
    if (this.own.line !== undefined) return this.own.line;
    return timestampsRequest(what === "timestamps" ? "TS" : "TS64", this.count, mode, carried);
  }

  take(parser: Parser): boolean {
    if (this.kind.what === "timestamps") {
      const answer = parser.timestamp();
      if (answer instanceof Timestamp) this.take16(answer);
      else if (answer) this.refusal = decodeRefusal(answer.text);
      return answer !== undefined;
    }
    const answer = parser.value(this.bounds());
    if (answer?.kind === "-") this.refusal = decodeRefusal(answer.text);
    else if (answer) this.takeValue(answer);
    return answer !== undefined;
  }

  private take16(first: Timestamp): void {
    this.first = first;
    if (this.count > 1 && !first.before(this.last)) throw new Malformed("more timestamps than there are");
  }

  private takeValue(v: Value): void {
    if (this.kind.what === "ids") this.ids = readIds(v, this.count);
    else if (this.kind.what === "lease") this.value = this.own.read?.(v);
    else {
      this.first64 = readTimestamp64(v, this.count);
      this.first = Timestamp.from64(this.first64);
    }
  }

  private bounds(): typeof limits {
    if (this.kind.what === "ids") return { bytes: 0, items: this.count, depth: 1 };
    return this.kind.what === "lease" ? limits : { bytes: 20, items: 0, depth: 0 };
  }

  settle(connection: Connection): void {
    this.answered(connection, this);
  }

  /** Ends the calls that still wait: with an error, or with the answer. */
  finish(error?: Error): void {
    for (const call of this.calls) {
      if (call.ended) continue;
      if (error) call.fail(error);
      else call.succeed(this);
    }
    this.waiting = 0;
    this.due = Infinity;
  }

  /** Fails the calls whose deadline has come. */
  expire(now: number, error: (call: Call) => Error): void {
    this.due = Infinity;
    for (const call of this.calls) {
      if (call.ended) continue;
      if (call.due > now) this.due = Math.min(this.due, call.due);
      else this.leave(call, error(call));
    }
  }

  /** Fails a call. Those that have ended are forgotten, with their numbers, before they are more than those that wait. */
  leave(call: Call, error: Error): void {
    call.fail(error);
    this.waiting--;
    if (this.isUnderWay || 2 * this.waiting > this.calls.length) return;
    const left = this.calls.filter(({ ended }) => !ended);
    this.calls = [];
    this.count = this.waiting = 0;
    for (const other of left) this.join(other);
  }
}
