import { type Server, type Socket, createServer } from "node:net";

/** A command, and the connection that it came on. */
export interface Request {
  readonly args: readonly string[];
  readonly node: Node;
  readonly socket: Socket;
}

/** Answers a request; undefined has the cluster answer as usual, "" nothing. */
export type Reply = (r: Request) => string | undefined;

const bulk = (text: string): string => `$${text.length}\r\n${text}\r\n`;

/** A node that a test plays. */
export class Node {
  readonly requests: string[][] = [];
  readonly sockets = new Set<Socket>();
  private readonly server: Server;

  constructor(
    readonly cluster: Cluster,
    readonly name: string,
  ) {
    this.server = createServer((socket) => this.serve(socket));
  }

  listen(): Promise<void> {
    return new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
  }

  get port(): number {
    return (this.server.address() as { port: number }).port;
  }

  get addr(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** The requests with a name that it got. */
  named(name: string): string[][] {
    return this.requests.filter(([command]) => command === name);
  }

  /** Ends all connections. */
  hangUp(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.hangUp();
    this.server.close();
  }

  private serve(socket: Socket): void {
    let text = "";
    this.sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      for (let args = take(); args; args = take()) {
        this.requests.push(args);
        socket.write(this.cluster.answer({ args, node: this, socket }), "latin1");
      }
    });
    const take = (): string[] | undefined => {
      const lines = text.split("\r\n");
      const count = Number(lines[0]?.slice(1));
      if (lines.length < 2 * count + 2) return undefined;
      text = lines.slice(2 * count + 1).join("\r\n");
      return lines.slice(1, 2 * count + 1).filter((_, i) => i % 2 === 1);
    };
  }
}

/** Nodes that a test plays: they answer as those of one cluster do, unless `reply` says otherwise. */
export class Cluster implements AsyncDisposable {
  readonly nodes: Node[] = [];
  leader = 0;
  id = "5e1f0c3a9b2d4e71";
  reply: Reply = () => undefined;
  /** The next index of a timestamp, and the next ID. */
  next = 1n;
  private nextId = 1n;

  static async start(count = 3): Promise<Cluster> {
    const cluster = new Cluster();
    for (let i = 0; i < count; i++) cluster.nodes.push(new Node(cluster, `node ${i}`));
    await Promise.all(cluster.nodes.map((node) => node.listen()));
    return cluster;
  }

  get addrs(): string[] {
    return this.nodes.map((node) => node.addr);
  }

  node(i: number): Node {
    const node = this.nodes[i];
    if (!node) throw new Error(`there is no node ${i}`);
    return node;
  }

  get leading(): Node {
    return this.node(this.leader);
  }

  /** All requests with a name. */
  named(name: string): string[][] {
    return this.nodes.flatMap((node) => node.named(name));
  }

  answer(r: Request): string {
    const own = this.reply(r);
    if (own !== undefined) return own;
    switch (r.args[0]) {
      case "AUTH":
        return "+OK\r\n";
      case "INFO":
        return bulk(`# Cluster\r\nisotone_cluster_id:${this.id}\r\n`);
      case "CLUSTER":
        return this.slots();
      case "SNOWFLAKE":
        return this.ids(r.args[1]);
      default:
        return r.node === this.leading ? this.lead(r.args) : `-MOVED 0 ${this.leading.addr}\r\n`;
    }
  }

  private slots(): string {
    const nodes = [this.leading, ...this.nodes.filter((node) => node !== this.leading)];
    const list = nodes.map((node) => `*2\r\n${bulk("127.0.0.1")}:${node.port}\r\n`);
    return `*1\r\n*${nodes.length + 2}\r\n:0\r\n:16383\r\n${list.join("")}`;
  }

  private ids(count: string | undefined): string {
    const list = Array.from({ length: Number(count ?? 1) }, () => `:${this.nextId++}\r\n`);
    return count === undefined ? list.join("") : `*${list.length}\r\n${list.join("")}`;
  }

  private lead(args: readonly string[]): string {
    if (args[0] === "WORKER") {
      return args[1] === "LEASE"
        ? `*5\r\n:7\r\n:${args[3]}\r\n:${Number(args[3]) + Number(args[4])}\r\n${bulk("41/5/5/12")}:1288834974657\r\n`
        : "+OK\r\n";
    }
    const first = this.next;
    this.next += BigInt(args[1] ?? 1);
    if (args[0] === "TS64") return bulk((470639688003178497n + first).toString());
    const bytes = Buffer.alloc(16);
    bytes.writeBigUInt64BE(1_795_317_567_364_593_274n);
    bytes.writeBigUInt64BE(first, 8);
    return bulk(bytes.toString("latin1"));
  }

  [Symbol.asyncDispose](): Promise<void> {
    for (const node of this.nodes) node.close();
    return Promise.resolve();
  }
}
