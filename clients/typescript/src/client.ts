import { type Batch, idsPerRequest, kindArrival, kindIds, kindLease, kinds16, kinds64, type Kind } from "./batch.js";
import { type Code, IsotoneError } from "./errors.js";
import { Generator, type GeneratorOptions } from "./generator.js";
import { type CallOptions, type Options, type TimestampOptions, isMode, isTimestamp, isWithin, validate } from "./options.js";
import type { ReadMode, Value } from "./resp.js";
import { Router } from "./router.js";
import { Range, Timestamp, step16, step64, timestamps64Max, timestampsMax } from "./timestamp.js";

/** The most IDs that one call may ask for. */
export const idsMax = 65_536;
/** A call whose floor is so far ahead of what was received and of this machine's clock, in nanoseconds, may be held by the leader. */
const aheadMin = 100_000_000n;
const noOptions = {};

const one16 = (b: Batch, at: number): Timestamp => b.first.plus(at);
const one64 = (b: Batch, at: number): bigint => b.first64 + BigInt(at);
const many16 = (b: Batch, at: number, count: number): Range<Timestamp> => new Range(b.first.plus(at), count, step16);
const many64 = (b: Batch, at: number, count: number): Range<bigint> => new Range(b.first64 + BigInt(at), count, step64);
const manyIds = (b: Batch, at: number, count: number): bigint[] => b.ids.slice(at, at + count);

/**
 * Requests timestamps and IDs from a cluster. One for each process is enough; any number of calls may be under way. Every call waits until it is
 * answered, its deadline comes or it is canceled, across all failures of the cluster. So give calls a deadline.
 */
export class Client implements AsyncDisposable {
  readonly #router: Router;

  /** Makes a client that begins to search for the leader. It does not wait for one: see {@link Client.connect}. */
  constructor(options: Options) {
    validate(options);
    this.#router = new Router({ ...options });
  }

  /** Makes a client, and waits until a leader is connected. It fails as calls do. */
  static async connect(options: Options, until: CallOptions = noOptions): Promise<Client> {
    const client = new Client(options);
    try {
      await client.#router.requests.arrivals.call(kindArrival, 1, () => undefined, until);
      return client;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  /** The cluster that this client belongs to: that of the options, or of the first node that reported one; "" until then. */
  get cluster(): string {
    return this.#router.cluster;
  }

  /** The largest timestamp that was received, which a program may store for {@link Options.floor}. */
  get floor(): Timestamp {
    return this.#router.requests.floor;
  }

  /** Returns a timestamp larger than all that any client had received when the call began. */
  timestamp(options: TimestampOptions = noOptions): Promise<Timestamp> {
    return this.#stamps(kinds16, 1, timestampsMax, one16, options);
  }

  /** Returns 1 to 2³² consecutive timestamps. */
  timestamps(count: number, options: TimestampOptions = noOptions): Promise<Range<Timestamp>> {
    return this.#stamps(kinds16, count, timestampsMax, many16, options);
  }

  /** Returns a timestamp of 64 bits: unix milliseconds << 18 | counter. Both forms have one order, see {@link Timestamp.from64}. */
  timestamp64(options: TimestampOptions = noOptions): Promise<bigint> {
    return this.#stamps(kinds64, 1, timestamps64Max, one64, options);
  }

  /** Returns 1 to 2¹⁸ consecutive timestamps of 64 bits. */
  timestamps64(count: number, options: TimestampOptions = noOptions): Promise<Range<bigint>> {
    return this.#stamps(kinds64, count, timestamps64Max, many64, options);
  }

  #stamps<T>(
    kinds: readonly Kind[],
    count: number,
    most: number,
    pick: (b: Batch, at: number, n: number) => T,
    o: TimestampOptions,
  ): Promise<T> {
    const mode = o.mode ?? this.#router.options.mode;
    if (!isWithin(count, 1, most)) return invalid(`${count} timestamps: want a whole number from 1 to ${most}`);
    if (!isMode(mode)) return invalid("mode: want quorum or lease");
    if (!isTimestamp(o.above)) return invalid("above: want a Timestamp; see Timestamp.parse, fromBytes and from64");
    const kind = kinds[mode === undefined ? 0 : mode === "quorum" ? 1 : 2] as Kind;
    const { above } = o;
    if (!above || above.equals(Timestamp.zero)) return this.#router.requests.pools.stamps.call(kind, count, pick, o);
    const now = BigInt(Date.now()) * 1_000_000n;
    const near = (this.floor.time > now ? this.floor.time : now) + aheadMin;
    const use = above.time > near ? "ahead" : "stamps";
    this.#router.use(use);
    return this.#router.requests.pools[use].callAlone(kind, count, (b) => pick(b, 0, count), o, { above });
  }

  /** Returns an ID from any member. */
  async id(options: CallOptions = noOptions): Promise<bigint> {
    const [id] = await this.ids(1, options);
    return id as bigint;
  }

  /** Returns 1 to 65,536 IDs, perhaps from several members. */
  async ids(count: number, options: CallOptions = noOptions): Promise<bigint[]> {
    if (!isWithin(count, 1, idsMax)) return invalid(`${count} IDs: want a whole number from 1 to ${idsMax}`);
    this.#router.use("ids");
    const parts: Promise<bigint[]>[] = [];
    for (let rest = count; rest > 0; rest -= idsPerRequest) {
      parts.push(this.#router.requests.pools.ids.call(kindIds, Math.min(rest, idsPerRequest), manyIds, options));
    }
    return (await Promise.all(parts)).flat();
  }

  /** Leases a worker from the cluster, and makes IDs in this process, without a request for each. */
  generator(options: GeneratorOptions = {}, until: CallOptions = noOptions): Promise<Generator> {
    this.#router.use("leases");
    const send = <T>(line: string, read: (v: Value) => T, o: CallOptions, final?: Code): Promise<T> =>
      this.#router.requests.pools.leases.callAlone(kindLease, 1, (b) => b.value as T, o, { line, read, final });
    return Generator.lease(send, () => this.#router.requests.closed, options, until);
  }

  /** Ends the client. Waiting and later calls fail with `closed`. When it is done, all connections are closed. Close generators first. */
  async close(): Promise<void> {
    this.#router.close();
    await Promise.all([...this.#router.sockets].map((socket) => new Promise<void>((done) => socket.once("close", () => done()))));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** No secret is printed. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Client { cluster: '${this.cluster}', leader: '${this.#router.search.leader}' }`;
  }
}

function invalid<T>(message: string): Promise<T> {
  return Promise.reject(new IsotoneError("invalid_argument", message));
}

export type { ReadMode };
