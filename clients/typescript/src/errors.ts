/**
 * What went wrong. The codes are those of all protocols of Isotone; `canceled` and `closed` are about a call of this client.
 */
export type Code =
  | "invalid_argument"
  | "not_leader"
  | "no_leader"
  | "overloaded"
  | "deadline_exceeded"
  | "unauthorized"
  | "forbidden"
  | "quota_exceeded"
  | "no_worker"
  | "no_quorum"
  | "clock"
  | "wrong_cluster"
  | "regressed"
  | "internal"
  | "canceled"
  | "closed";

/** The error of every call that fails. Decide by {@link IsotoneError.code}; the message is for people. */
export class IsotoneError extends Error {
  override readonly name = "IsotoneError";
  /** The leader that the node has named, with the code `not_leader`. */
  readonly leader: string | undefined;
  /** The pause that the node has asked for, with the code `quota_exceeded`; 0 if it asked for none. */
  readonly retryAfterMs: number;

  constructor(
    readonly code: Code,
    message: string,
    more: ErrorOptions & { leader?: string; retryAfterMs?: number } = {},
  ) {
    super(message, "cause" in more ? { cause: more.cause } : undefined);
    this.leader = more.leader;
    this.retryAfterMs = more.retryAfterMs ?? 0;
  }
}

/** Bytes that are no answer to the request: the connection is unusable. The message has none of them, as they may contain a secret. */
export class Malformed extends Error {
  override readonly name = "Malformed";
}

/** What a client does after a refusal: docs/client-protocol.md, "What a refusal means". */
export type Class = "redirect" | "retry" | "quota" | "unauthorized" | "final";

const codes: Readonly<Record<string, Code>> = {
  MOVED: "not_leader",
  CLUSTERDOWN: "no_leader",
  TRYAGAIN: "overloaded",
  LOADING: "overloaded",
  BUSY: "overloaded",
  MASTERDOWN: "overloaded",
  NOAUTH: "unauthorized",
  WRONGPASS: "unauthorized",
  NOPERM: "forbidden",
  WRONGCLUSTER: "wrong_cluster",
  REGRESSED: "regressed",
  WRONGTYPE: "invalid_argument",
  ERR: "invalid_argument",
};

/** The codes that follow a word more exactly, as "code: text". */
const refined: Readonly<Record<string, readonly Code[]>> = { ERR: ["internal"], TRYAGAIN: ["no_worker", "no_quorum", "quota_exceeded"] };

/** Returns the refusal that an error line (without its `-`) stands for. A redirect without a valid address throws {@link Malformed}. */
export function decodeRefusal(line: string): IsotoneError {
  const [word, rest] = cut(line, " ");
  const code = Object.hasOwn(codes, word) ? codes[word] : undefined;
  if (code === undefined) return new IsotoneError("internal", line);
  if (code === "not_leader") {
    const [, addr] = cut(rest, " "); // slot host:port
    const colon = addr.lastIndexOf(":");
    const leader = joinAddr(addr.slice(0, colon), addr.slice(colon + 1));
    if (colon < 0 || !splitAddr(leader)) throw new Malformed("a redirect to no valid address");
    return new IsotoneError(code, `the leader is ${leader}`, { leader });
  }
  for (const better of refined[word] ?? []) {
    const prefix = `${better}: `;
    if (!rest.startsWith(prefix)) continue;
    const text = rest.slice(prefix.length);
    return new IsotoneError(better, text, better === "quota_exceeded" ? { retryAfterMs: retryAfter(text) } : {});
  }
  return new IsotoneError(code, rest);
}

/** Returns what a client does after a refusal with a code. */
export function classOf(code: Code): Class {
  switch (code) {
    case "not_leader":
      return "redirect";
    case "no_leader":
    case "overloaded":
    case "no_worker":
    case "no_quorum":
      return "retry";
    case "quota_exceeded":
      return "quota";
    case "unauthorized":
      return "unauthorized";
    default:
      return "final";
  }
}

/** What a node may ask for at most. */
const retryAfterMaxMs = 3_600_000;

function retryAfter(text: string): number {
  const found = /retry after (\d{1,10}) ms$/.exec(text);
  return found ? Math.min(Number(found[1]), retryAfterMaxMs) : 0;
}

function cut(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + separator.length)];
}

/** Returns host:port. Redis writes IPv6 addresses without brackets. */
export function joinAddr(host: string, port: string | number): string {
  const bare = host.replace(/^\[|\]$/g, "");
  return bare.includes(":") ? `[${bare}]:${port}` : `${bare}:${port}`;
}

/** Takes host:port apart; undefined if it is none. */
export function splitAddr(addr: string): { host: string; port: number } | undefined {
  const found = /^(?:\[([^[\]\s/]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(addr);
  const port = Number(found?.[3]);
  return found && port >= 1 && port <= 65535 ? { host: found[1] ?? found[2] ?? "", port } : undefined;
}

/** Returns a text about any error. Node leaves the message of some empty. */
export function readable(error: unknown): string {
  if (error instanceof IsotoneError) return `${error.code}: ${error.message}`;
  if (!(error instanceof Error)) return String(error);
  return error.message || (error as NodeJS.ErrnoException).code || error.name;
}

/** Returns what was thrown as an error. */
export function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
