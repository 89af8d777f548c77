import { IsotoneError } from "./errors.js";

/** The most timestamps that one call may ask for. */
export const timestampsMax = 2 ** 32;
/** The most 64-bit timestamps that one call may ask for: those of a millisecond. */
export const timestamps64Max = 2 ** 18;

const counterBits = 18n;
const nanosPerMilli = 1_000_000n;
const max64 = 2n ** 64n - 1n;

/**
 * A timestamp of 16 bytes: a time in nanoseconds since 1970 and an index. It is immutable. Timestamps compare by
 * {@link Timestamp.compare}, and by `<` and `>`, as their text sorts as they do; `===` compares objects, so use {@link Timestamp.equals}.
 */
export class Timestamp {
  /** The smallest timestamp, which is smaller than every one ever issued. */
  static readonly zero = new Timestamp(0, 0, 0, 0);

  /** Four words of 32 bits, as signed numbers, which V8 stores without allocation. Use the static methods. */
  private constructor(
    private readonly time1: number,
    private readonly time0: number,
    private readonly index1: number,
    private readonly index0: number,
  ) {}

  /** Returns the timestamp with a time and an index, both unsigned numbers of 64 bits. */
  static of(time: bigint, index: bigint): Timestamp {
    if (time < 0n || time > max64 || index < 0n || index > max64) {
      throw new IsotoneError("invalid_argument", `no timestamp has time ${time} and index ${index}: want two numbers of 64 bits`);
    }
    return new Timestamp(word(time >> 32n), word(time), word(index >> 32n), word(index));
  }

  /** Reads the form that {@link Timestamp.toString} writes: 32 hexadecimal digits. */
  static parse(text: string): Timestamp {
    if (!/^[0-9a-f]{32}$/i.test(text)) throw new IsotoneError("invalid_argument", "a timestamp has 32 hexadecimal digits");
    return Timestamp.read(Buffer.from(text, "hex"), 0);
  }

  /** Reads exactly 16 bytes, big-endian. */
  static fromBytes(bytes: Uint8Array): Timestamp {
    if (!(bytes instanceof Uint8Array) || bytes.length !== 16)
      throw new IsotoneError("invalid_argument", "a timestamp is a Uint8Array of 16 bytes");
    return Timestamp.read(bytes, 0);
  }

  /** Reads 16 bytes from `at` on, which must be there. @internal */
  static read(bytes: Uint8Array, at: number): Timestamp {
    return new Timestamp(int32(bytes, at), int32(bytes, at + 4), int32(bytes, at + 8), int32(bytes, at + 12));
  }

  /**
   * Returns the place of a 64-bit timestamp in the order of all: the earliest nanosecond that is not before it, with index 0.
   * Different ones have different places, in the same order, up to the year 2553.
   */
  static from64(timestamp: bigint): Timestamp {
    const milli = timestamp >> counterBits;
    if (milli >= max64 / nanosPerMilli) return Timestamp.of(max64, 0n);
    const counterMask = (1n << counterBits) - 1n;
    const fraction = (timestamp & counterMask) * nanosPerMilli;
    return Timestamp.of(milli * nanosPerMilli + ((fraction + counterMask) >> counterBits), 0n);
  }

  /** Nanoseconds since 1970. They are close to those of a wall clock, but only the order of timestamps is meaningful. */
  get time(): bigint {
    return join(this.time1, this.time0);
  }

  get index(): bigint {
    return join(this.index1, this.index0);
  }

  /** Returns the smallest 64-bit timestamp that is not before this one. */
  to64(): bigint {
    const { time, index } = this;
    if (time === 0n && index === 0n) return 0n;
    // The time of u is u·10⁶/2¹⁸, rounded up. It is later than before if u·10⁶/2¹⁸ is.
    const before = index === 0n ? time - 1n : time;
    return ((before / nanosPerMilli) << counterBits) + ((before % nanosPerMilli) << counterBits) / nanosPerMilli + 1n;
  }

  /** Returns -1, 0 or 1, as this timestamp is smaller than another one, equal, or larger. */
  compare(other: Timestamp): -1 | 0 | 1 {
    return (
      compareWords(this.time1, other.time1) ||
      compareWords(this.time0, other.time0) ||
      compareWords(this.index1, other.index1) ||
      compareWords(this.index0, other.index0)
    );
  }

  before(other: Timestamp): boolean {
    return this.compare(other) < 0;
  }

  equals(other: Timestamp): boolean {
    return this.compare(other) === 0;
  }

  /** Returns the timestamp with the same time and an index larger by `n`, up to 2³². It must exist. */
  plus(n: number): Timestamp {
    const low = (this.index0 >>> 0) + n;
    const high = low < 2 ** 32 ? this.index1 : (this.index1 + Math.floor(low / 2 ** 32)) | 0;
    return new Timestamp(this.time1, this.time0, high, low | 0);
  }

  /** The 16 bytes, big-endian. They compare as timestamps do. */
  toBytes(): Uint8Array {
    return Uint8Array.from(Buffer.from(this.toString(), "hex"));
  }

  /** 32 hexadecimal digits. */
  toString(): string {
    return hex(this.time1) + hex(this.time0) + hex(this.index1) + hex(this.index0);
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Timestamp(${this.toString()})`;
  }
}

function word(n: bigint): number {
  return Number(BigInt.asIntN(32, n));
}

function int32(b: Uint8Array, at: number): number {
  return ((b[at] ?? 0) << 24) | ((b[at + 1] ?? 0) << 16) | ((b[at + 2] ?? 0) << 8) | (b[at + 3] ?? 0);
}

function join(high: number, low: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
}

function hex(n: number): string {
  return (n >>> 0).toString(16).padStart(8, "0");
}

function compareWords(a: number, b: number): -1 | 0 | 1 {
  return a === b ? 0 : a >>> 0 < b >>> 0 ? -1 : 1;
}

/** Reads a 64-bit timestamp: a decimal number without a sign. */
export function parseTimestamp64(text: string): bigint {
  const value = /^\d{1,20}$/.test(text) ? BigInt(text) : -1n;
  if (value < 0n || value > max64) throw new IsotoneError("invalid_argument", "a 64-bit timestamp is a decimal number of 64 bits");
  return value;
}

/** Takes a 64-bit timestamp apart as PD does: unix milliseconds, and a counter of 18 bits. */
export function parts64(timestamp: bigint): { physical: bigint; logical: number } {
  return { physical: timestamp >> counterBits, logical: Number(BigInt.asUintN(Number(counterBits), timestamp)) };
}

/** Consecutive timestamps, in increasing order: `first`, and those that follow it. */
export class Range<T extends Timestamp | bigint> implements Iterable<T> {
  constructor(
    readonly first: T,
    readonly count: number,
    private readonly step: (first: T, i: number) => T,
  ) {}

  /** Returns the i-th timestamp, counted from 0. */
  at(i: number): T {
    if (!Number.isInteger(i) || i < 0 || i >= this.count) throw new RangeError(`timestamp ${i} of a range of ${this.count}`);
    return this.step(this.first, i);
  }

  get last(): T {
    return this.at(this.count - 1);
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let i = 0; i < this.count; i++) yield this.at(i);
  }
}

/** Steps of a {@link Range} in each form. */
export const step16 = (first: Timestamp, i: number): Timestamp => first.plus(i);
export const step64 = (first: bigint, i: number): bigint => first + BigInt(i);
