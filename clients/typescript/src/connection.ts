import * as net from "node:net";
import * as tls from "node:tls";
import { IsotoneError, Malformed, classOf, decodeRefusal, readable, splitAddr, toError } from "./errors.js";
import { type Credentials, type Options, validateCredentials } from "./options.js";
import { type Limits, Parser, type Value, command, limits, readCluster } from "./resp.js";
import type { Use } from "./search.js";

/** A request whose answer is awaited. */
export interface Pending {
  /** When it was sent. */
  sentAt: number;
  /** Takes the answer; false if more is needed. What it throws makes the connection unusable. */
  take(parser: Parser): boolean;
  /** Handles the answer. It is called once, unless the connection ends before. */
  settle(connection: Connection): void;
}

/** A request of a connection's own. */
class Command implements Pending {
  sentAt = performance.now();
  private value: Value | undefined;

  constructor(
    private readonly then: (v: Value) => void,
    private readonly bounds: Limits = limits,
  ) {}

  take(parser: Parser): boolean {
    this.value = parser.value(this.bounds);
    return this.value !== undefined;
  }

  settle(): void {
    if (this.value) this.then(this.value);
  }
}

/** Who uses connections. */
export interface Owner {
  readonly options: Options;
  readonly dialTimeoutMs: number;
  /** Throws unless a node at addr may be used that reports this cluster. */
  checkCluster(addr: string, cluster: string | null): void;
  opened(connection: Connection): void;
  /** The connection has ended. It has no requests any more. */
  ended(connection: Connection, error: Error, lost: readonly Pending[]): void;
  /** What a node answers to CLUSTER SLOTS. */
  viewed(connection: Connection, v: Value): void;
  /** A socket exists until it is closed, which may be after the end of its connection. */
  sockets: Set<net.Socket>;
}

/** The error of a connection whose node refuses this client, whatever it asks: there is no use in trying again at once. */
export class RefusedClient extends Error {
  constructor(readonly why: IsotoneError) {
    super(why.message);
  }
}

/** The alerts of TLS by which a node refuses the client's certificate, or its absence. */
const certificateAlert =
  /ALERT_(BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_\w+|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE)|CERTIFICATE_REQUIRED/;

/** A connection to a node. It is open once the node has accepted the client's credentials, and its cluster was checked. */
export class Connection {
  isOpen = false;
  wasOpen = false;
  hasEnded = false;
  /** The client does not need it any more. */
  isDropped = false;
  /** The client has closed it because an answer was late. */
  isGivenUp = false;
  /** It has answered a request for a call. */
  answered = false;
  /** The node has accepted the client's credentials. */
  isKnown = false;
  /** Refusals in a row, and until when nothing is sent because of them. */
  pauses = 0;
  pausedUntil = 0;
  readonly begun = performance.now();
  askedAt = this.begun;
  readonly pending: Pending[] = [];
  private readonly parser = new Parser();
  private readonly socket: net.Socket;
  private timer: NodeJS.Timeout | undefined;
  private name = "";

  /** Begins to connect. A connection for questions asks the first one at once. */
  constructor(
    private readonly owner: Owner,
    readonly addr: string,
    public use: Use,
  ) {
    const { host, port } = splitAddr(addr) ?? { host: "", port: 0 };
    const secure = owner.options.tls;
    this.socket = secure ? tls.connect({ ...secure, host, port, rejectUnauthorized: true }) : net.connect({ host, port });
    owner.sockets.add(this.socket);
    this.socket.setNoDelay(true);
    this.socket.once(secure ? "secureConnect" : "connect", () => void this.greet());
    this.socket.on("data", (chunk: Buffer) => this.read(chunk));
    this.socket.on("error", (error) => this.end(certificateFault(error)));
    this.socket.once("end", () => this.end(new Error("the connection was closed")));
    this.socket.once("close", () => {
      owner.sockets.delete(this.socket);
      this.end(new Error("the connection was closed"));
    });
    this.limitTime();
  }

  /** Sends a request. */
  send(line: string, request: Pending): void {
    this.pending.push(request);
    this.socket.write(line, "latin1");
  }

  /** Asks for the leader and the members. */
  ask(): void {
    if (this.isOpen) this.limitTime();
    this.askedAt = performance.now();
    this.send(command("CLUSTER", "SLOTS"), new Command((v) => this.viewed(v)));
  }

  /** Ends the connection. Its requests are not answered any more. */
  end(error: Error): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.isOpen = false;
    clearTimeout(this.timer);
    this.socket.destroy();
    this.owner.ended(this, error, this.pending.splice(0));
  }

  /** Ends a connection that is not needed any more. */
  drop(): void {
    this.isDropped = true;
    this.end(new Error("the connection is not needed any more"));
  }

  /** Ends the connection unless it is open, and the node has answered, in time. An answer that has arrived is read first. */
  private limitTime(): void {
    const ms = this.owner.dialTimeoutMs;
    const late = (): void => this.end(new Error(`no answer in ${ms} ms`));
    this.timer = setTimeout(() => (this.timer = setTimeout(late, 0)), ms);
  }

  /** Says who the client is, and asks for the cluster and, for questions, for the leader. */
  private async greet(): Promise<void> {
    try {
      const auth = await this.authentication();
      if (this.hasEnded) return;
      if (auth) this.send(auth, new Command((v) => this.authenticated(v), { bytes: 64, items: 0, depth: 0 }));
      this.send(command("INFO", "cluster"), new Command((v) => this.identified(v)));
      if (this.use === "ask") this.ask();
    } catch (error) {
      this.end(asRefusal(error));
    }
  }

  /** Returns the command that begins the connection; undefined without credentials. */
  private async authentication(): Promise<string | undefined> {
    const { credentials, tls: secure } = this.owner.options;
    if (!credentials) return undefined;
    if (!secure && !isLoopback(this.socket.remoteAddress ?? "")) {
      throw new IsotoneError("unauthorized", `the secret would cross the network to ${this.addr} in plaintext: set the option tls`);
    }
    const got = typeof credentials === "function" ? await this.told(credentials) : credentials;
    validateCredentials(got);
    this.name = got.name;
    return command("AUTH", got.name, Buffer.from(got.secret).toString("latin1"));
  }

  private async told(source: () => Credentials | Promise<Credentials>): Promise<Credentials> {
    try {
      return await source();
    } catch (error) {
      throw new Error(`the function for credentials failed: ${readable(error)}`, { cause: error });
    }
  }

  private authenticated(v: Value): void {
    if (v.kind === "+" && v.text === "OK") {
      this.isKnown = true;
      return;
    }
    // Not even a part of the answer: who sends what was sent to it has the secret in it.
    const code = v.kind === "-" ? decodeRefusal(v.text).code : undefined;
    if (code === undefined) throw new IsotoneError("unauthorized", `${this.addr} does not answer AUTH with OK`);
    if (code !== "invalid_argument") throw new IsotoneError(code, `${this.addr} does not accept the credentials of ${this.name}`);
    throw new IsotoneError("unauthorized", `${this.addr} takes no credentials on this connection; it may require TLS`);
  }

  private identified(v: Value): void {
    if (v.kind === "-") throw decodeRefusal(v.text);
    this.owner.checkCluster(this.addr, readCluster(v));
    this.isOpen = this.wasOpen = true;
    if (this.use === "ask") return;
    clearTimeout(this.timer);
    this.owner.opened(this);
  }

  private viewed(v: Value): void {
    clearTimeout(this.timer);
    this.owner.viewed(this, v);
  }

  private read(chunk: Buffer): void {
    try {
      this.parser.push(chunk);
      while (this.parser.rest > 0 && !this.hasEnded) {
        const request = this.pending[0];
        if (!request) throw new Malformed("an answer that nothing asked for");
        if (!request.take(this.parser)) return;
        // What follows the last answer would be taken for the next one.
        if (this.pending.length === 1 && this.parser.rest > 0) throw new Malformed("more than one answer");
        this.pending.shift();
        request.settle(this);
      }
    } catch (error) {
      this.end(this.isOpen ? toError(error) : asRefusal(error));
    }
  }
}

function isLoopback(address: string): boolean {
  return /^(?:::ffff:)?127\.|^::1$/.test(address);
}

function certificateFault(error: NodeJS.ErrnoException): Error {
  if (!certificateAlert.test(`${error.code ?? ""} ${error.message}`)) return error;
  return new RefusedClient(new IsotoneError("unauthorized", `the node wants another client certificate: ${error.message}`));
}

/** Returns the error of beginning a connection as a {@link RefusedClient} if it is one. */
function asRefusal(error: unknown): Error {
  const refuses =
    error instanceof IsotoneError &&
    classOf(error.code) !== "retry" &&
    ["unauthorized", "forbidden", "invalid_argument"].includes(error.code);
  return refuses ? new RefusedClient(error) : toError(error);
}
