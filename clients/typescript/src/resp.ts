import { Malformed, joinAddr, splitAddr } from "./errors.js";
import { Layout, parseId } from "./snowflake.js";
import { Timestamp, parseTimestamp64 } from "./timestamp.js";

// This file writes requests and reads answers of RESP2, the Redis protocol (docs/resp.md). It bounds all that a node may announce.

/** How a node answers: by a round of the quorum, or by the leader's lease. Without it, as the node is configured. */
export type ReadMode = "quorum" | "lease";

/** Writes a command as an array of bulk strings. Each character is one byte. */
export function command(...args: readonly string[]): string {
  return `*${args.length}\r\n${args.map(bulk).join("")}`;
}

function bulk(text: string): string {
  return `$${text.length}\r\n${text}\r\n`;
}

/** Writes a request for timestamps, which carries a floor unless that is zero. */
export function timestampsRequest(name: "TS" | "TS64", count: number, mode: ReadMode | undefined, floor: Timestamp): string {
  const args = [name, count.toString()];
  if (mode) args.push(mode.toUpperCase());
  if (!floor.equals(Timestamp.zero)) args.push("FLOOR", floor.toString());
  return command(...args);
}

/** Writes a request for IDs. */
export function idsRequest(count: number): string {
  return count === 1 ? command("SNOWFLAKE") : command("SNOWFLAKE", count.toString());
}

/** An answer. `text` is that of `+`, `:`, `$` (empty for the null string) and `-`, one character for each byte; `items` that of `*`. */
export interface Value {
  readonly kind: string;
  readonly text: string;
  readonly items: Value[];
}

/** Bounds of one answer: bytes of a string, items of all arrays together, arrays within arrays. */
export interface Limits {
  readonly bytes: number;
  readonly items: number;
  readonly depth: number;
}

/** Bounds of answers that are neither timestamps nor IDs. Nodes stay far below them. */
export const limits: Limits = { bytes: 4096, items: 4096, depth: 5 };
const lineMax = 8192;
const none: Value[] = [];
const minus = 45;

/** Reads answers from what arrives, in any pieces. What it throws is {@link Malformed}; it is unusable then. */
export class Parser {
  private input: Buffer = Buffer.alloc(0);
  private at = 0;
  private items = 0; // that the arrays of the answer at hand may still announce
  private readonly open: { value: Value; want: number }[] = []; // arrays that are not complete

  push(chunk: Buffer): void {
    this.input = this.rest === 0 ? chunk : Buffer.concat([this.input.subarray(this.at), chunk]);
    this.at = 0;
  }

  /** The bytes that have arrived and were not read. */
  get rest(): number {
    return this.input.length - this.at;
  }

  /** Reads a timestamp or an error; undefined if more is needed. */
  timestamp(): Timestamp | Value | undefined {
    const { input, at } = this;
    if (this.rest > 0 && input[at] === minus) return this.value({ bytes: 0, items: 0, depth: 0 });
    const known = Math.min(this.rest, 5);
    for (let i = 0; i < known; i++) if (input[at + i] !== timestampHead[i]) throw new Malformed("another answer than a timestamp");
    if (this.rest < 23) return undefined;
    if (input[at + 21] !== 13 || input[at + 22] !== 10) throw new Malformed("a timestamp of more than 16 bytes");
    this.at += 23;
    return Timestamp.read(input, at + 5);
  }

  /** Reads any answer; undefined if more is needed. An error has the kind `-`. */
  value(bounds: Limits): Value | undefined {
    if (this.open.length === 0) this.items = bounds.items;
    for (;;) {
      let value = this.scalar(bounds);
      if (!value) return undefined;
      for (let top = this.open.at(-1); top; top = this.open.at(-1)) {
        if (value !== top.value) top.value.items.push(value);
        if (top.value.items.length < top.want) break;
        value = top.value;
        this.open.pop();
      }
      if (this.open.length === 0) return value;
    }
  }

  /** Reads a value that is no array, or the head of an array. */
  private scalar(bounds: Limits): Value | undefined {
    const line = this.line();
    if (line === undefined) return undefined;
    const [kind, text] = [line.charAt(0), line.slice(1)];
    switch (kind) {
      case ":":
        if (!/^-?\d{1,19}$/.test(text)) throw new Malformed("a number that is none");
        break;
      case "$":
        return this.string(text, bounds.bytes);
      case "*":
        return this.array(text, bounds);
      case "-":
        if (this.open.length > 0) throw new Malformed("an error within an array");
        break;
      case "+":
        break;
      default:
        throw new Malformed("an unknown type of answer");
    }
    this.at += line.length + 2;
    return { kind, text, items: none };
  }

  /** Returns the line at hand without its end, but does not pass it. */
  private line(): string | undefined {
    const end = this.input.indexOf(10, this.at);
    if ((end < 0 ? this.input.length : end) - this.at >= lineMax) throw new Malformed("a line that is too long");
    const kind = this.input[this.at];
    if (kind !== undefined && !"+-:$*".includes(String.fromCharCode(kind))) throw new Malformed("an unknown type of answer");
    if (end < 0) return undefined;
    if (end - this.at < 2 || this.input[end - 1] !== 13) throw new Malformed("a line without CR");
    return this.input.toString("latin1", this.at, end - 1);
  }

  private string(size: string, most: number): Value | undefined {
    const begin = this.at + size.length + 3;
    if (size === "-1") {
      this.at = begin;
      return { kind: "$", text: "", items: none };
    }
    const end = begin + announced(size, most);
    if (this.input.length < end + 2) return undefined;
    if (this.input[end] !== 13 || this.input[end + 1] !== 10) throw new Malformed("a string that is longer than announced");
    this.at = end + 2;
    return { kind: "$", text: this.input.toString("latin1", begin, end), items: none };
  }

  private array(size: string, bounds: Limits): Value {
    const want = announced(size, this.items);
    if (this.open.length >= bounds.depth) throw new Malformed("arrays within arrays");
    this.at += size.length + 3;
    this.items -= want;
    const value = { kind: "*", text: "", items: [] };
    if (want > 0 || this.open.length === 0) this.open.push({ value, want });
    return value;
  }
}

const timestampHead = Buffer.from("$16\r\n");

function announced(size: string, most: number): number {
  const n = /^\d{1,10}$/.test(size) ? Number(size) : Infinity;
  if (n > most) throw new Malformed("a length beyond what was asked for");
  return n;
}

/** Reads the first of `count` timestamps of 64 bits. */
export function readTimestamp64(v: Value, count: number): bigint {
  if (v.kind !== "$" || !/^\d{1,20}$/.test(v.text)) throw new Malformed("another answer than a timestamp of 64 bits");
  try {
    const first = parseTimestamp64(v.text);
    const last = parseTimestamp64((first + BigInt(count - 1)).toString());
    if (Timestamp.from64(last).to64() === last) return first; // none is after the year 2553
  } catch {
    // A number beyond 64 bits.
  }
  throw new Malformed("a timestamp of 64 bits beyond its range");
}

/** Reads `count` IDs. */
export function readIds(v: Value, count: number): bigint[] {
  const list = v.kind === ":" && count === 1 ? [v] : v.items;
  if (list.length !== count) throw new Malformed("another number of IDs");
  return list.map((item) => {
    if (item.kind !== ":") throw new Malformed("another answer than an ID");
    return wellFormed(() => parseId(item.text));
  });
}

/** What a node says about the cluster. */
export interface View {
  readonly leader: string;
  readonly members: readonly string[];
}

/** Bounds the addresses that a client is given, and those that it learns from nodes. */
export const membersMax = 64;

/** Reads the answer to CLUSTER SLOTS of the node at `asked`: the first node of the first range leads. */
export function readView(v: Value, asked: string): View {
  const members: string[] = [];
  let leader = "";
  for (const range of v.items) {
    if (range.items.length < 3) throw new Malformed("slots without a node");
    for (const [i, node] of range.items.slice(2).entries()) {
      const [name, port] = node.items;
      if (!name || port?.kind !== ":") throw new Malformed("a node without a port");
      const host = name.text === "" || name.text === "?" ? (splitAddr(asked)?.host ?? "") : name.text;
      const addr = joinAddr(host, port.text);
      if (!splitAddr(addr) || members.length === membersMax) throw new Malformed("a node without a valid address, or too many");
      if (i === 0) leader ||= addr;
      members.push(addr);
    }
  }
  if (leader === "") throw new Malformed("no node has slots");
  return { leader, members };
}

/** Reads the cluster's ID in the answer to INFO: empty while the node does not know it, null if the node reports none. */
export function readCluster(v: Value): string | null {
  if (v.kind !== "$" && v.kind !== "+") throw new Malformed("another answer to INFO than a text");
  const id = /(?:^|\r\n)isotone_cluster_id:([^\r\n]*)/.exec(v.text)?.[1];
  if (id === undefined || id === "") return id ?? null;
  if (!isCluster(id)) throw new Malformed("an ID of the cluster that is none");
  return id;
}

/** Reports whether a text is the ID of a cluster. */
export function isCluster(id: string): boolean {
  return /^[0-9a-f]{16}$/.test(id) && /[^0]/.test(id);
}

/** The answer to WORKER LEASE. */
export interface Grant {
  readonly worker: number;
  readonly start: number;
  readonly end: number;
  readonly layout: Layout;
}

/** Reads `[worker, start, end, layout, epoch]`. */
export function readGrant(v: Value): Grant {
  const [worker, start, end, layout, epoch] = v.items;
  const form = v.items.map((item) => (item.kind === "+" ? "$" : item.kind)).join("");
  if (form !== ":::$:" || !worker || !start || !end || !layout || !epoch) throw new Malformed("another answer than a lease");
  const grant = {
    worker: Number(worker.text),
    start: Number(start.text),
    end: Math.min(Number(end.text), Number.MAX_SAFE_INTEGER),
    layout: wellFormed(() => Layout.parse(layout.text, Number(epoch.text))),
  };
  if (
    !Number.isSafeInteger(grant.start) ||
    grant.worker < 0 ||
    grant.worker >= grant.layout.workers ||
    grant.start < 0 ||
    grant.start >= grant.end
  ) {
    throw new Malformed("a lease that cannot be");
  }
  return grant;
}

/** Reads the answer to WORKER RELEASE. */
export function readOk(v: Value): void {
  if (v.text !== "OK") throw new Malformed("another answer than OK");
}

/** Calls a reader of texts, whose errors mean here that the answer is malformed. */
function wellFormed<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new Malformed("a text that cannot be read", { cause });
  }
}
