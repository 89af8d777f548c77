// Callers that each ask for one timestamp at a time, and a lone call beside a bare socket.
//
//   node build/bench/main.js [--callers 1000] [--seconds 5] [--lone 5000] [--deadline MS] [--mode quorum|lease] HOST:PORT...
//
// Prints "count rate p50_us p99_us" of the callers, then medians of calls made one after the other, and their ratio.
import { connect } from "node:net";
import { inspect, parseArgs } from "node:util";
import { Client, type ReadMode, type TimestampOptions } from "../src/index.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    callers: { type: "string", default: "1000" },
    seconds: { type: "string", default: "5" },
    lone: { type: "string", default: "5000" },
    deadline: { type: "string" },
    mode: { type: "string" },
  },
});
const client = await Client.connect({ addrs: positionals, mode: values.mode as ReadMode | undefined }, { deadlineMs: 10_000 });
const options: TimestampOptions = values.deadline ? { deadlineMs: Number(values.deadline) } : {};

/** Latencies in classes of an eighth of a power of two microseconds. */
class Histogram {
  count = 0;
  private readonly classes = new Float64Array(512);

  add(us: number): void {
    this.count++;
    const at = Math.min(511, Math.max(0, Math.round(8 * Math.log2(us + 1))));
    this.classes[at] = (this.classes[at] ?? 0) + 1;
  }

  quantile(q: number): number {
    let left = q * this.count;
    const at = this.classes.findIndex((n) => (left -= n) <= 0);
    return Math.round(2 ** (at / 8) - 1);
  }
}

async function together(callers: number, seconds: number): Promise<void> {
  const took = new Histogram();
  const end = performance.now() + 1000 * seconds;
  const caller = async (): Promise<void> => {
    for (let begin = performance.now(); begin < end;) {
      await client.timestamp(options);
      const now = performance.now();
      took.add(1000 * (now - begin));
      begin = now;
    }
  };
  const begin = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  const rate = took.count / ((performance.now() - begin) / 1000);
  console.log(`${took.count} ${Math.round(rate)} ${took.quantile(0.5)} ${took.quantile(0.99)}`);
}

/** Returns a function that writes the request of a lone call to a socket, and reads the answer. */
async function bare(addr: string): Promise<{ ask: () => Promise<void>; end: () => void }> {
  const [host, port] = addr.split(":");
  const socket = connect(Number(port), host);
  socket.setNoDelay(true);
  await new Promise((resolve) => socket.once("connect", resolve));
  const request = `*2\r\n$2\r\nTS\r\n$1\r\n1\r\n`;
  let answered: () => void = () => undefined;
  socket.on("data", () => answered());
  const ask = (): Promise<void> =>
    new Promise((resolve) => {
      answered = resolve;
      socket.write(request, "latin1");
    });
  return { ask, end: () => socket.destroy() };
}

async function timed(call: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await call();
  return (performance.now() - begin) * 1000;
}

const median = (list: number[]): number => list.sort((a, b) => a - b)[list.length >> 1] ?? 0;

/** Measures calls made one after the other, in turns with a bare socket, so that both meet the same machine. */
async function alone(calls: number): Promise<void> {
  // The address of the leader is in what Node prints of a client.
  const socket = await bare(/leader: '([^']+)'/.exec(inspect(client))?.[1] ?? "");
  const [lone, raw]: [number[], number[]] = [[], []];
  for (let i = 0; i < calls; i++) {
    raw.push(await timed(socket.ask));
    lone.push(await timed(() => client.timestamp(options)));
  }
  const [of, to] = [median(lone.slice(calls / 10)), median(raw.slice(calls / 10))];
  console.log(`lone ${of.toFixed(1)} bare ${to.toFixed(1)} ratio ${(of / to).toFixed(2)}`);
  socket.end();
}

await together(Number(values.callers), Number(values.seconds));
await alone(Number(values.lone));
await client.close();
