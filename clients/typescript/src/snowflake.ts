import { IsotoneError } from "./errors.js";

const idBits = 63;
const idMax = 2n ** 63n - 1n;
const workerBitsMax = 30;
const base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/**
 * How the 63 bits of an ID are split, from high to low: time in milliseconds since an epoch, datacenter, worker, sequence. Where there is one
 * number for a worker, it is datacenter and worker together. A reader has to know the layout, as IDs do not contain it.
 */
export class Layout {
  private constructor(
    readonly timeBits: number,
    readonly datacenterBits: number,
    readonly workerBits: number,
    readonly sequenceBits: number,
    /** The time of IDs with time 0, in unix milliseconds. */
    readonly epoch: number,
  ) {}

  /** Reads bits of time/datacenter/worker/sequence, or time/worker/sequence: `41/5/5/12`. */
  static parse(text: string, epoch: number): Layout {
    const parts = text.split("/");
    if (parts.length < 3 || parts.length > 4 || !parts.every((part) => /^(?:0|[1-9]\d?)$/.test(part))) {
      throw invalid(`layout ${JSON.stringify(text)}: want time/datacenter/worker/sequence or time/worker/sequence, in bits`);
    }
    if (parts.length === 3) parts.splice(1, 0, "0");
    const [time = 0, datacenter = 0, worker = 0, sequence = 0] = parts.map(Number);
    const layout = new Layout(time, datacenter, worker, sequence, epoch);
    const faults = layout.faults();
    if (faults.length > 0) throw invalid(`layout ${text}: ${faults.join("; ")}`);
    return layout;
  }

  private faults(): string[] {
    const faults = [];
    const sum = this.timeBits + this.datacenterBits + this.workerBits + this.sequenceBits;
    const both = this.datacenterBits + this.workerBits;
    if (sum !== idBits) faults.push(`the parts have ${sum} bits, want ${idBits}`);
    if (this.timeBits === 0) faults.push("there are no bits for the time");
    if (both > workerBitsMax) faults.push(`datacenter and worker have ${both} bits, at most ${workerBitsMax}`);
    if (!Number.isSafeInteger(this.epoch) || this.epoch < 0) faults.push(`the epoch ${this.epoch} is no unix millisecond`);
    else if (this.timeBits <= idBits && BigInt(this.epoch) + this.timeMax > idMax) faults.push("epoch and time go beyond 63 bits");
    return faults;
  }

  /** The text that {@link Layout.parse} reads. */
  toString(): string {
    const middle = this.datacenterBits === 0 ? "" : `${this.datacenterBits}/`;
    return `${this.timeBits}/${middle}${this.workerBits}/${this.sequenceBits}`;
  }

  equals(other: Layout): boolean {
    return this.toString() === other.toString() && this.epoch === other.epoch;
  }

  get workers(): number {
    return 2 ** (this.datacenterBits + this.workerBits);
  }

  /** The largest value of the time bits. */
  get timeMax(): bigint {
    return 2n ** BigInt(this.timeBits) - 1n;
  }

  /** The time of an ID in unix milliseconds. */
  millis(id: bigint): number {
    return this.epoch + Number(id >> BigInt(idBits - this.timeBits));
  }

  worker(id: bigint): number {
    return Number((id >> BigInt(this.sequenceBits)) & BigInt(this.workers - 1));
  }

  datacenter(id: bigint): number {
    return Math.floor(this.worker(id) / 2 ** this.workerBits);
  }

  inDatacenter(id: bigint): number {
    return this.worker(id) % 2 ** this.workerBits;
  }

  sequence(id: bigint): number {
    return Number(BigInt.asUintN(this.sequenceBits, id));
  }
}

/** Reads an ID in decimal. All readers of IDs accept exactly what is written: no sign, space, leading zero or other case. */
export function parseId(text: string): bigint {
  return bounded(/^(?:0|[1-9]\d{0,18})$/.test(text) ? BigInt(text) : -1n, "in decimal");
}

/** Reads an ID with the digits 0-9, A-Z, a-z. */
export function parseBase62(text: string): bigint {
  let id = /^(?:0|[1-9A-Za-z][0-9A-Za-z]{0,10})$/.test(text) ? 0n : -1n;
  if (id === 0n) for (const digit of text) id = id * 62n + BigInt(base62Digits.indexOf(digit));
  return bounded(id, "in base 62");
}

/** Reads an ID of 16 hexadecimal digits in lower case. */
export function parseHex(text: string): bigint {
  return bounded(/^[0-9a-f]{16}$/.test(text) ? BigInt(`0x${text}`) : -1n, "of 16 hexadecimal digits");
}

/** Writes an ID with the digits 0-9, A-Z, a-z: at most 11. */
export function formatBase62(id: bigint): string {
  let text = "";
  do {
    text = base62Digits.charAt(Number(id % 62n)) + text;
    id /= 62n;
  } while (id > 0n);
  return text;
}

/** Writes an ID with 16 hexadecimal digits, so that texts sort as IDs do. */
export function formatHex(id: bigint): string {
  return id.toString(16).padStart(16, "0");
}

function bounded(id: bigint, form: string): bigint {
  if (id < 0n || id > idMax) throw invalid(`want an ID ${form}, of at most 63 bits`);
  return id;
}

function invalid(message: string): IsotoneError {
  return new IsotoneError("invalid_argument", message);
}
