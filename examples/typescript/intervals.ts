// Timestamps of the cluster clock from any node, over HTTP, with Node's own fetch.
//
// For clusters that run with INTERVAL_MS. A timestamp comes from the nearest node, whichever leads. The
// operation that uses it is complete when a node, the same or another, has answered that it is past.

import { before, Oracle, type Timestamp } from "./over_http.js";

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The digits of a timestamp, as `wait` takes them. */
const hex = (ts: Timestamp) => [ts.time, ts.index].map((part) => part.toString(16).padStart(16, "0")).join("");

/** Asks one node, and another one if that has no valid reading or does not answer. */
export class Clock {
  private turn = 0;

  /** The nearest of the addresses comes first. */
  constructor(private readonly addrs: string[]) {}

  /** Returns a timestamp. Then wait for it. */
  async timestamp(timeout = 2000): Promise<Timestamp> {
    const view = new DataView(await this.get("/interval?n=1", timeout));
    return { time: view.getBigUint64(0), index: view.getBigUint64(8) };
  }

  /** Returns when ts is past for everyone: whatever begins after that gets a larger timestamp. */
  async wait(ts: Timestamp, timeout = 2000): Promise<void> {
    await this.get(`/interval?wait=${hex(ts)}`, timeout);
  }

  private async get(target: string, timeout: number): Promise<ArrayBuffer> {
    const deadline = Date.now() + timeout;
    let pause = 1;
    let trouble: unknown;
    while (Date.now() < deadline) {
      const turn = this.turn;
      try {
        // Bound each attempt: a paused node accepts connections but does not answer.
        const signal = AbortSignal.timeout(Math.min(500, deadline - Date.now()));
        const answer = await fetch(`http://${this.addrs[turn % this.addrs.length]}${target}`, { signal, cache: "no-store" });
        if (answer.ok) return await answer.arrayBuffer();
        const { error } = (await answer.json()) as { error: { code: string; message: string } };
        trouble = `${error.code}: ${error.message}`;
        if (answer.status !== 503 && answer.status !== 504) break;
      } catch (error) {
        trouble = error;
      }
      // A retry is always safe: a timestamp that nobody has received orders nothing.
      if (turn === this.turn) this.turn++;
      await sleep(pause * (0.5 + Math.random()));
      pause = Math.min(2 * pause, 50);
    }
    throw new Error(`no answer: ${trouble}`);
  }
}

/** Writes with a timestamp, and waits beside the write. Returns when both are done. */
async function transact(clock: Clock, write: (ts: Timestamp) => Promise<unknown>): Promise<Timestamp> {
  const ts = await clock.timestamp();
  await Promise.all([write(ts), clock.wait(ts)]);
  return ts;
}

async function main(addrs: string[]) {
  const clocks = addrs.map((_, i) => new Clock([...addrs.slice(i), ...addrs.slice(0, i)])); // one near each node
  const oracle = new Oracle(addrs);
  const versions: Timestamp[] = []; // stands for a database, whose replica takes a millisecond to answer
  const write = async (ts: Timestamp) => {
    await sleep(1);
    versions.push(ts);
  };
  let last: Timestamp = { time: 0n, index: 0n };
  for (let i = 0; i < 300; i++) {
    const ts = await transact(clocks[i % clocks.length], write);
    if (!before(last, ts)) throw new Error("out of order");
    last = await oracle.timestamps(); // one order with those of the oracle
    if (!before(ts, last)) throw new Error("out of order with the oracle");
  }
  console.log(`${versions.length} writes in order with 300 timestamps of the oracle, the last ${hex(last)}`);
}

const args = process.argv.slice(2);
try {
  await main(args.length > 0 ? args : ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]);
} catch (error) {
  if (!String(error).includes("not_found")) throw error; // a cluster may be set up without intervals
  console.log("no intervals here");
}
