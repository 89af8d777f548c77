// Timestamps and IDs from an Isotone cluster over HTTP, with Node's own fetch.

/** 64-bit integers do not fit in a number, so both parts are bigint. */
export interface Timestamp {
  time: bigint;
  index: bigint;
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends requests to the leader, which it learns from any member. fetch reuses connections. */
export class Oracle {
  private leader?: string;
  private turn: number; // of the members, while no leader is known

  constructor(private readonly addrs: string[]) {
    this.turn = Math.floor(Math.random() * addrs.length);
  }

  /** Returns the first of count timestamps. The i-th, counted from 0, has the same time and index + i. */
  async timestamps(count = 1, timeout = 2000): Promise<Timestamp> {
    const body = await this.get(`/timestamp?n=${count}&format=range`, timeout);
    const view = new DataView(body);
    return { time: view.getBigUint64(0), index: view.getBigUint64(8) };
  }

  /** Returns count snowflake IDs. Any member issues them, not only the leader. */
  async ids(count = 1, timeout = 2000): Promise<bigint[]> {
    const text = new TextDecoder().decode(await this.get(`/api/snowflake?n=${count}`, timeout));
    return text.trim().split("\n").map(BigInt);
  }

  private async get(target: string, timeout: number): Promise<ArrayBuffer> {
    const deadline = Date.now() + timeout;
    let pause = 1;
    let trouble: unknown;
    while (Date.now() < deadline) {
      const addr = this.leader ?? this.addrs[this.turn++ % this.addrs.length];
      try {
        // Bound each attempt: a paused node accepts connections but does not answer.
        const signal = AbortSignal.timeout(Math.min(500, deadline - Date.now()));
        const answer = await fetch(`http://${addr}${target}`, { signal });
        if (answer.ok) return await answer.arrayBuffer();
        const { error } = (await answer.json()) as { error: { code: string; message: string } };
        if (answer.status === 409) {
          this.leader = answer.headers.get("Isotone-Leader") ?? undefined;
          continue;
        }
        trouble = `${error.code}: ${error.message}`;
        if (answer.status !== 503 && answer.status !== 504) break;
      } catch (error) {
        trouble = error;
      }
      // A retry is always safe: a timestamp that nobody has received orders nothing.
      this.leader = undefined;
      await sleep(pause * (0.5 + Math.random()));
      pause = Math.min(2 * pause, 50);
    }
    throw new Error(`no answer: ${trouble}`);
  }
}

export const before = (a: Timestamp, b: Timestamp) =>
  a.time < b.time || (a.time === b.time && a.index < b.index);

async function main(addrs: string[]) {
  const oracle = new Oracle(addrs);
  let last: Timestamp = { time: 0n, index: 0n };
  for (let i = 0; i < 1000; i++) {
    const ts = await oracle.timestamps();
    if (!before(last, ts)) throw new Error("out of order");
    last = ts;
  }
  console.log(`1,000 timestamps in order, the last ${last.time} ${last.index}`);
  try {
    const ids = await oracle.ids(10);
    if (new Set(ids).size !== 10) throw new Error("an ID twice");
    console.log("ids:", ids.join(" "));
  } catch (error) {
    if (!String(error).includes("not_found")) throw error; // a cluster may be set up without IDs
    console.log("no IDs here");
  }
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const addrs = process.argv.slice(2);
  await main(addrs.length > 0 ? addrs : ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]);
}
