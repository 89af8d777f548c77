// Timestamps from an Isotone cluster over the Redis protocol, with the npm package redis.
//
// The package's client is for one node; this code follows MOVED to the leader. Commands that
// are sent without waiting share a write, and their answers arrive in order.

import { createClient, RESP_TYPES } from "redis";
import { before, type Timestamp } from "./over_http.js";

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

// A timestamp is 16 bytes, not text.
const open = async (addr: string) => {
  const client = createClient({
    url: `redis://${addr}`,
    disableOfflineQueue: true,
    socket: { connectTimeout: 500, reconnectStrategy: false },
    commandOptions: { timeout: 500, typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  });
  client.on("error", () => {}); // the failing command reports it
  await client.connect();
  return client;
};

export class Oracle {
  private conn?: Promise<Awaited<ReturnType<typeof open>>>;

  constructor(private readonly addrs: string[]) {}

  /** Returns the first of count timestamps. The i-th, counted from 0, has the same time and index + i. */
  async timestamps(count = 1, timeout = 2000): Promise<Timestamp> {
    const deadline = Date.now() + timeout;
    let pause = 1;
    let trouble: unknown;
    while (Date.now() < deadline) {
      const conn = (this.conn ??= open(this.addrs[Math.floor(Math.random() * this.addrs.length)]));
      try {
        const first = (await (await conn).sendCommand(["TS", String(count)])) as unknown as Buffer;
        return { time: first.readBigUInt64BE(0), index: first.readBigUInt64BE(8) };
      } catch (error) {
        trouble = error;
        const moved = /^MOVED \d+ (\S+)$/.exec(error instanceof Error ? error.message : "");
        this.drop(conn);
        if (moved) {
          this.conn ??= open(moved[1]);
          continue;
        }
        if (error instanceof Error && error.message.startsWith("ERR ")) throw error; // a retry would not help
        await sleep(pause * (0.5 + Math.random()));
        pause = Math.min(2 * pause, 50);
      }
    }
    throw new Error(`no timestamp in ${timeout} ms: ${trouble}`);
  }

  close() {
    if (this.conn) this.drop(this.conn);
  }

  private drop(conn: NonNullable<typeof this.conn>) {
    if (this.conn === conn) this.conn = undefined;
    conn.then((client) => client.destroy()).catch(() => {});
  }
}

const addrs = process.argv.slice(2);
const oracle = new Oracle(addrs.length > 0 ? addrs : ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]);
let last: Timestamp = { time: 0n, index: 0n };
for (let i = 0; i < 100; i++) {
  // Ten at a time: they share a write and a round of the cluster.
  for (const ts of await Promise.all(Array.from({ length: 10 }, () => oracle.timestamps()))) {
    if (i > 0 && !before(last, ts)) throw new Error("out of order");
    last = ts;
  }
}
const first = await oracle.timestamps(100);
if (!before(last, first)) throw new Error("out of order");
console.log(`1,000 timestamps in order, and a range of 100 from ${first.time} ${first.index}`);
oracle.close();
