// The driver of this client for the conformance kit: conformance/README.md describes drivers.
import { createInterface } from "node:readline";
import { Client, type Generator, IsotoneError, type Options, type ReadMode, Timestamp, type TimestampOptions } from "../src/index.js";

const features = ["queue_max", "credentials", "tls", "client_certificate", "above", "lazy", "events", "generator", "generator_clock"];

interface Command {
  id: number;
  do: string;
  client: string;
  generator: string;
  call: number;
  method: string;
  count?: number;
  deadline_ms: number;
  mode?: ReadMode;
  above?: string;
  user: string;
  secret: string;
  lease_ms?: number;
  worker?: number;
  now_ms?: number;
  ahead_max_ms?: number;
  options: {
    addrs: string[];
    cluster?: string;
    floor?: string;
    mode?: ReadMode;
    queue_max?: number;
    dial_timeout_ms?: number;
    lazy?: boolean;
    user?: string;
    secret?: string;
    tls?: { ca: string; cert?: string; key?: string; server_name?: string };
  };
}

const clients = new Map<string, { client: Client; credentials: { name: string; secret: string } }>();
const generators = new Map<string, { generator: Generator; now: number }>();
const running = new Map<number, AbortController>();

function write(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function find<T>(map: Map<string, T>, name: string): T {
  const found = map.get(name);
  if (!found) throw new IsotoneError("invalid_argument", `there is no ${name}`);
  return found;
}

function optionsOf(c: Command, credentials: { name: string; secret: string }): Options {
  const o = c.options;
  const tell = (event: string, addr: string, error?: string): void => write({ event, client: c.client, addr, error });
  return {
    addrs: o.addrs,
    cluster: o.cluster,
    floor: o.floor ? Timestamp.parse(o.floor) : undefined,
    mode: o.mode,
    queueMax: o.queue_max,
    dialTimeoutMs: o.dial_timeout_ms,
    tls: o.tls && { ca: o.tls.ca, cert: o.tls.cert, key: o.tls.key, ...(o.tls.server_name ? { servername: o.tls.server_name } : {}) },
    credentials: o.user ? () => ({ ...credentials }) : undefined,
    hooks: {
      leader: (addr) => tell("leader", addr),
      retried: (addr) => tell("retried", addr),
      rejected: (addr, error) => tell("rejected", addr, error.code),
    },
  };
}

async function open(c: Command, signal: AbortSignal): Promise<object> {
  const credentials = { name: c.options.user ?? "", secret: c.options.secret ?? "" };
  const options = optionsOf(c, credentials);
  const client = c.options.lazy ? new Client(options) : await Client.connect(options, { deadlineMs: c.deadline_ms, signal });
  clients.set(c.client, { client, credentials });
  return {};
}

async function call(c: Command, signal: AbortSignal): Promise<object> {
  const { client } = find(clients, c.client);
  const count = c.count ?? 1;
  const o: TimestampOptions = { deadlineMs: c.deadline_ms, signal, mode: c.mode, above: c.above ? Timestamp.parse(c.above) : undefined };
  switch (c.method) {
    case "timestamp":
      return { first: await client.timestamp(o), count };
    case "timestamps":
      return { first: (await client.timestamps(count, o)).first, count };
    case "timestamp64":
      return { first: (await client.timestamp64(o)).toString(), count };
    case "timestamps64":
      return { first: (await client.timestamps64(count, o)).first.toString(), count };
    case "id":
      return { ids: [(await client.id(o)).toString()] };
    case "ids":
      return { ids: (await client.ids(count, o)).map(String) };
    default:
      throw new Error(`unsupported: the method ${c.method}`);
  }
}

async function lease(c: Command, signal: AbortSignal): Promise<object> {
  const made = { generator: undefined as unknown as Generator, now: c.now_ms ?? 0 };
  const options = {
    leaseMs: c.lease_ms,
    worker: c.worker,
    aheadMaxMs: c.ahead_max_ms,
    now: c.now_ms === undefined ? undefined : () => made.now,
  };
  made.generator = await find(clients, c.client).client.generator(options, { deadlineMs: c.deadline_ms, signal });
  generators.set(c.generator, made);
  return leased(made.generator);
}

function leased(generator: Generator): object {
  return { worker: generator.worker, ...generator.lease };
}

function run(c: Command, signal: AbortSignal): object | Promise<object> {
  switch (c.do) {
    case "hello":
      return { protocol: 1, client: "isotone-typescript", version: "0.1.0", features };
    case "sync":
      return {};
    case "new":
      return open(c, signal);
    case "call":
      return call(c, signal);
    case "cancel":
      running.get(c.call)?.abort();
      return {};
    case "cluster":
      return { cluster: find(clients, c.client).client.cluster };
    case "credentials":
      Object.assign(find(clients, c.client).credentials, { name: c.user, secret: c.secret });
      return {};
    case "close":
      return (clients.get(c.client)?.client.close() ?? Promise.resolve()).then(() => ({}));
    case "generator":
      return lease(c, signal);
    case "next":
      return find(generators, c.generator)
        .generator.nextN(c.count ?? 1, { deadlineMs: c.deadline_ms, signal })
        .then((ids) => ({ ids: ids.map(String) }));
    default:
      return generate(c);
  }
}

function generate(c: Command): object | Promise<object> {
  if (!["now", "try", "lease", "end"].includes(c.do)) throw new Error(`unsupported: the command ${c.do}`);
  const made = find(generators, c.generator);
  if (c.do === "now") made.now = c.now_ms ?? 0;
  if (c.do === "try") return { ids: made.generator.tryNextN(c.count ?? 1).map(String) };
  if (c.do === "end") return made.generator.close().then(() => ({}));
  return c.do === "lease" ? leased(made.generator) : {};
}

async function begin(c: Command): Promise<void> {
  const cancel = new AbortController();
  running.set(c.id, cancel);
  try {
    write({ id: c.id, ok: await run(c, cancel.signal) });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const code = error instanceof IsotoneError ? error.code : message.startsWith("unsupported") ? "unsupported" : "internal";
    write({ id: c.id, error: code, message });
    if (code === "internal" && !(error instanceof IsotoneError)) console.error(error);
  }
  running.delete(c.id);
}

// Commands that may take long are answered when they are done, all others before the next command is read.
const slow = new Set(["new", "call", "generator", "next"]);
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as Command;
  const answered = begin(command);
  if (!slow.has(command.do)) await answered;
}
process.exit(0);
