import { type ConnectionOptions, createSecureContext } from "node:tls";
import { IsotoneError, splitAddr, toError } from "./errors.js";
import { type ReadMode, isCluster, membersMax } from "./resp.js";
import type { Timestamp } from "./timestamp.js";

/** What a client proves its name with. */
export interface Credentials {
  readonly name: string;
  readonly secret: string;
}

/** What a request was answered with. */
export interface Answer {
  readonly addr: string;
  /** The form: timestamps of 16 bytes or 64 bits, IDs, or a lease of a worker. */
  readonly what: "timestamps" | "timestamps64" | "ids" | "lease";
  /** How many calls shared the request, and how many numbers they asked for. */
  readonly calls: number;
  readonly count: number;
  readonly tookMs: number;
}

/**
 * Functions that are called when something happens, once for each request and not for each call. For metrics, logs and traces. What they throw is an
 * uncaught exception of the process, and no error of a call.
 */
export interface Hooks {
  /** A request was answered. */
  answered?(answer: Answer): void;
  /** A request is sent again. */
  retried?(addr: string, error: Error): void;
  /** There is a connection to a new leader. */
  leader?(addr: string): void;
  /** Something that a node said was not used: it belongs to another cluster, or the order is broken. The latter must never happen. */
  rejected?(addr: string, error: IsotoneError): void;
}

export interface Options {
  /** 1 to 64 addresses of nodes, `host:port`. One reachable node is enough: the client learns the others. */
  readonly addrs: readonly string[];
  /** The ID of the cluster, 16 hexadecimal digits: no other is used. Default: that of the first node that reports one. */
  readonly cluster?: string | undefined;
  /** The largest timestamp that is known from before, perhaps stored by an earlier process: no call gets one at or below it. */
  readonly floor?: Timestamp | undefined;
  /** The read mode of calls that name none. */
  readonly mode?: ReadMode | undefined;
  /** Bounds the calls of each form and read mode that wait to be sent; 65,536 by default. */
  readonly queueMax?: number | undefined;
  /** Bounds opening a connection, and each question about the cluster, in milliseconds; 1,000 by default. */
  readonly dialTimeoutMs?: number | undefined;
  /** Has every connection use TLS: `ca`, `cert`, `key`, `servername` and others of `tls.connect`. Certificates are always verified. */
  readonly tls?: ConnectionOptions | undefined;
  /** What the client proves its name with. A function is called for each connection, so a secret can change while the client runs. */
  readonly credentials?: Credentials | (() => Credentials | Promise<Credentials>) | undefined;
  readonly hooks?: Hooks | undefined;
}

/** Options of one call. */
export interface CallOptions {
  /** When the call fails with `deadline_exceeded`, in milliseconds from its beginning, over all attempts. Default: never. */
  readonly deadlineMs?: number | undefined;
  /** Has the call fail with `canceled` when it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

export interface TimestampOptions extends CallOptions {
  readonly mode?: ReadMode | undefined;
  /** A floor of the call, which it received from elsewhere: its timestamps are above it. Such a call is a request of its own. */
  readonly above?: Timestamp | undefined;
}

const queueMaxMax = 2 ** 22;

/** Throws an error that names all faults of options. */
export function validate(o: Options): void {
  const faults: string[] = [];
  const need = (ok: boolean, fault: string): void => {
    if (!ok) faults.push(fault);
  };
  const addrs: readonly unknown[] = Array.isArray(o.addrs) ? o.addrs : [];
  need(addrs.length >= 1 && addrs.length <= membersMax, `addrs: want 1 to ${membersMax} addresses`);
  for (const addr of addrs)
    need(typeof addr === "string" && splitAddr(addr) !== undefined, `address ${JSON.stringify(addr)}: want host:port`);
  need(o.cluster === undefined || isCluster(o.cluster), "cluster: want 16 hexadecimal digits in lower case");
  need(isTimestamp(o.floor), "floor: want a Timestamp; see Timestamp.parse, fromBytes and from64");
  need(isMode(o.mode), "mode: want quorum or lease");
  need(isWithin(o.queueMax ?? 1, 1, queueMaxMax), `queueMax: want 1 to ${queueMaxMax}`);
  need(isWithin(o.dialTimeoutMs ?? 1, 1, 3_600_000), "dialTimeoutMs: want 1 to 3600000");
  const attempt = (what: string, check: () => void): void => {
    try {
      check();
    } catch (error) {
      faults.push(what + toError(error).message);
    }
  };
  if (o.tls) attempt("tls: ", () => createSecureContext(o.tls));
  if (o.credentials && typeof o.credentials !== "function") attempt("", () => validateCredentials(o.credentials));
  if (faults.length > 0) throw new IsotoneError("invalid_argument", faults.join("; "));
}

/** Reports whether a value is a timestamp, perhaps of another copy of this package, or none. */
export function isTimestamp(t: unknown): t is Timestamp | undefined {
  return t === undefined || (typeof t === "object" && typeof (t as Partial<Timestamp> | null)?.compare === "function");
}

/** Reports whether a value is a read mode, or none. */
export function isMode(mode: unknown): mode is ReadMode | undefined {
  return mode === undefined || mode === "quorum" || mode === "lease";
}

/** Reports whether a value is a whole number within bounds. */
export function isWithin(n: unknown, least: number, most: number): boolean {
  return typeof n === "number" && Number.isInteger(n) && n >= least && n <= most;
}

/** Throws unless credentials have the form that nodes accept. The message does not contain the secret. */
export function validateCredentials(credentials: unknown): asserts credentials is Credentials {
  const { name, secret } = (credentials ?? {}) as Partial<Credentials>;
  if (typeof name !== "string" || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
    throw new IsotoneError("invalid_argument", "credentials: want a name of 1 to 64 letters, digits, '.', '_' and '-'");
  if (typeof secret !== "string") throw new IsotoneError("invalid_argument", `credentials of ${name}: want a secret, a string`);
  const bytes = Buffer.byteLength(secret);
  if (bytes < 1 || bytes > 256)
    throw new IsotoneError("invalid_argument", `credentials of ${name}: want a secret of 1 to 256 bytes, got ${bytes}`);
}
