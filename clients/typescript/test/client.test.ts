// What a program sees of a client. The rules towards nodes are checked by the conformance kit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { type Answer, Client, IsotoneError, type Options, Timestamp } from "../src/index.js";
import { Cluster, type Reply } from "./cluster.js";

const soon = { deadlineMs: 20_000 };

/** Calls fn with a cluster and a client of it, and ends both. */
async function withClient(fn: (client: Client, cluster: Cluster) => Promise<void>, options: Partial<Options> = {}): Promise<void> {
  const cluster = await Cluster.start();
  const client = await Client.connect({ addrs: cluster.addrs, ...options }, soon);
  try {
    await fn(client, cluster);
  } finally {
    await client.close();
    await cluster[Symbol.asyncDispose]();
  }
}

/** Withholds the answers to requests with a name. The promise is done when there is one. */
function withhold(cluster: Cluster, name: string): { asked: Promise<void>; answer: () => void } {
  let asked: () => void = () => undefined;
  const held: (() => void)[] = [];
  const before = cluster.reply;
  cluster.reply = (r) => {
    if (r.args[0] !== name) return before(r);
    held.push(() => r.socket.write(cluster.answer(r), "latin1"));
    asked();
    return "";
  };
  const answer = (): void => {
    cluster.reply = before;
    for (const tell of held) tell();
  };
  return { asked: new Promise((resolve) => (asked = resolve)), answer };
}

const codeOf = (error: unknown): string => (error instanceof IsotoneError ? error.code : String(error));

void test("timestamps and IDs of all kinds", () =>
  withClient(async (client, cluster) => {
    const first = await client.timestamp(soon);
    const range = await client.timestamps(1000, soon);
    assert.ok(first.before(range.first));
    assert.equal([...range].length, 1000);
    assert.ok(range.first < range.last);
    assert.ok(client.floor.equals(range.last));
    const one = await client.timestamp64(soon);
    const many = await client.timestamps64(3, soon);
    assert.deepEqual([...many], [many.first, many.first + 1n, many.first + 2n]);
    assert.ok(one < many.first);
    assert.equal(typeof (await client.id(soon)), "bigint");
    assert.equal(new Set(await client.ids(10_000, soon)).size, 10_000);
    assert.equal(client.cluster, cluster.id);
    assert.deepEqual(new Set(cluster.nodes.map((node) => node.named("SNOWFLAKE").length > 0)), new Set([true]));
  }));

void test("calls of one moment share a request, and get numbers in their order", () =>
  withClient(async (client, cluster) => {
    const got = await Promise.all(Array.from({ length: 1000 }, () => client.timestamp(soon)));
    assert.deepEqual(
      cluster.named("TS").map(([, count]) => count),
      ["1000"],
    );
    for (const [i, ts] of got.entries()) if (i > 0) assert.ok((got[i - 1] as Timestamp).before(ts));
  }));

void test("callers that wait for each other's answers share requests", () =>
  withClient(async (client, cluster) => {
    const caller = async (): Promise<void> => {
      for (let i = 0; i < 10; i++) await client.timestamp(soon);
    };
    await Promise.all(Array.from({ length: 100 }, caller));
    assert.equal(cluster.named("TS").length, 10);
  }));

void test("a call that begins while a request is under way joins the next one", () =>
  withClient(async (client, cluster) => {
    const held = withhold(cluster, "TS");
    const early = client.timestamp(soon);
    await held.asked;
    const late = Promise.all([client.timestamp(soon), client.timestamp(soon)]);
    held.answer();
    await early;
    await late;
    assert.deepEqual(
      cluster.named("TS").map(([, count]) => count),
      ["1", "2"],
    );
  }));

void test("a deadline fails its call only", () =>
  withClient(async (client, cluster) => {
    const held = withhold(cluster, "TS");
    const begun = performance.now();
    const patient = client.timestamp(soon);
    const hurried = await Promise.allSettled([client.timestamp({ deadlineMs: 40 }), client.timestamp({ deadlineMs: 300 })]);
    assert.ok(performance.now() - begun >= 300);
    for (const result of hurried) assert.equal(result.status === "rejected" && codeOf(result.reason), "deadline_exceeded");
    held.answer();
    await patient;
  }));

void test("the message of a late call names the nodes that were tried", async () => {
  let told: () => void = () => undefined;
  const retried = new Promise<void>((resolve) => (told = resolve));
  await withClient(
    async (client, cluster) => {
      cluster.reply = (r) => (r.args[0] === "TS" ? "-CLUSTERDOWN no leader is known\r\n" : undefined);
      const patient = client.timestamp(soon);
      await retried;
      const message = new RegExp(`^no answer in time; .*${cluster.leading.addr}: no_leader: no leader is known`);
      await assert.rejects(client.timestamp({ deadlineMs: 1 }), { code: "deadline_exceeded", message });
      cluster.reply = () => undefined;
      await patient;
    },
    { hooks: { retried: () => told() } },
  );
});

void test("an aborted call fails at once, and others that share its request go on", () =>
  withClient(async (client, cluster) => {
    const held = withhold(cluster, "TS");
    const abort = new AbortController();
    const reason = new Error("not needed");
    const canceled = [client.timestamp({ signal: abort.signal }), client.timestamps(3, { signal: abort.signal })];
    const other = client.timestamp(soon);
    await held.asked;
    const third = client.timestamp({ signal: abort.signal });
    abort.abort(reason);
    for (const result of await Promise.allSettled([...canceled, third])) {
      assert.equal(result.status === "rejected" && codeOf(result.reason), "canceled");
      assert.equal(result.status === "rejected" && (result.reason as Error).cause, reason);
    }
    await assert.rejects(client.timestamp({ signal: abort.signal }), { code: "canceled" });
    held.answer();
    await other;
  }));

void test("calls that end before their request is sent take no numbers and no room", () =>
  withClient(
    async (client, cluster) => {
      const held = withhold(cluster, "TS");
      const first = client.timestamp(soon);
      await held.asked;
      const patient = client.timestamps(5, soon);
      for (let i = 0; i < 10; i++) {
        const abort = new AbortController();
        const calls = Array.from({ length: 9 }, () => client.timestamps(1000, { signal: abort.signal }));
        const ends = Promise.allSettled(calls);
        abort.abort();
        for (const result of await ends) assert.equal(result.status === "rejected" && codeOf(result.reason), "canceled");
      }
      held.answer();
      await Promise.all([first, patient]);
      assert.ok(Number(cluster.named("TS").at(-1)?.[1]) < 2010);
    },
    { queueMax: 10 },
  ));

void test("closing ends all calls and connections", () =>
  withClient(async (client, cluster) => {
    const held = withhold(cluster, "TS");
    const calls = [client.timestamp(), client.timestamp64({ mode: "lease" }), client.timestamp()];
    await held.asked;
    const ends = Promise.allSettled(calls);
    await client.close();
    for (const result of await ends) assert.equal(result.status === "rejected" && codeOf(result.reason), "closed");
    await assert.rejects(client.id(), { code: "closed" });
    await client.close();
  }));

void test("calls that wait are bounded", () =>
  withClient(
    async (client, cluster) => {
      const held = withhold(cluster, "TS");
      const calls = Promise.allSettled(Array.from({ length: 30 }, () => client.timestamp(soon)));
      await held.asked;
      held.answer();
      const results = await calls;
      const refused = results.filter((r) => r.status === "rejected");
      assert.ok(refused.length >= 10 && refused.length <= 20, `${refused.length} were refused`);
      for (const result of refused) assert.equal(codeOf(result.reason), "overloaded");
    },
    { queueMax: 10 },
  ));

void test("options and arguments that are wrong fail", async () => {
  const wrong: Partial<Options>[] = [
    { addrs: [] },
    { addrs: ["nowhere"] },
    { cluster: "0000000000000000" },
    { mode: "fast" as "lease" },
    { queueMax: 0 },
    { dialTimeoutMs: 0.5 },
  ];
  for (const options of wrong) assert.throws(() => new Client({ addrs: ["127.0.0.1:1"], ...options }), { code: "invalid_argument" });
  await withClient(async (client, cluster) => {
    await assert.rejects(client.timestamps(0), { code: "invalid_argument" });
    await assert.rejects(client.timestamps(1.5), { code: "invalid_argument" });
    await assert.rejects(client.ids(65_537), { code: "invalid_argument" });
    await assert.rejects(client.timestamp({ deadlineMs: NaN }), { code: "invalid_argument" });
    await assert.rejects(client.timestamp({ mode: "fast" as "lease" }), { code: "invalid_argument" });
    assert.equal(cluster.named("TS").length, 0);
  });
});

void test("hooks tell of leaders, retries and answers, and what they throw is not for the call", async () => {
  const leaders: string[] = [];
  const answers: Answer[] = [];
  let retries = 0;
  const hooks = { leader: (addr: string) => leaders.push(addr), answered: (a: Answer) => answers.push(a), retried: () => retries++ };
  await withClient(
    async (client, cluster) => {
      await client.timestamps(5, soon);
      cluster.leader = 1;
      await client.timestamp(soon);
      assert.deepEqual(leaders, [cluster.node(0).addr, cluster.node(1).addr]);
      assert.equal(retries, 1);
      assert.deepEqual(
        answers.map(({ addr, what, calls, count }) => ({ addr, what, calls, count })),
        [
          { addr: cluster.node(0).addr, what: "timestamps", calls: 1, count: 5 },
          { addr: cluster.node(1).addr, what: "timestamps", calls: 1, count: 1 },
        ],
      );
    },
    { hooks },
  );
});

void test("no call fails when the leader hangs up and another one is elected", () =>
  withClient(async (client, cluster) => {
    let last = Timestamp.zero;
    for (let i = 0; i < 20; i++) {
      const calls = Array.from({ length: 20 }, () => client.timestamp(soon));
      const before = cluster.leading;
      cluster.leader = (cluster.leader + 1) % 3;
      before.hangUp();
      for (const ts of await Promise.all(calls)) {
        assert.ok(last.before(ts));
        last = ts;
      }
    }
  }));

void test("options of a wrong type fail at once", () => {
  for (const [wrong, fault] of [
    [{ floor: "18ea3fd0c5c8f67a0000000000000000" }, /^floor: want a Timestamp/],
    [{ floor: new Uint8Array(16) }, /^floor: want a Timestamp/],
    [{ tls: { cert: "no certificate", key: "no key" } }, /^tls: /],
    [{ credentials: { name: "a b", secret: "c" } }, /^credentials: want a name/],
    [{ credentials: { name: "ada" } }, /^credentials of ada: want a secret/],
  ] as const)
    assert.throws(() => new Client({ addrs: ["127.0.0.1:1"], ...wrong } as Options), { code: "invalid_argument", message: fault });
});

void test("timestamps of another size or type are refused", () =>
  withClient(async (client) => {
    for (const wrong of [new Uint8Array(15), new Uint8Array(17), "0".repeat(16)])
      assert.throws(() => Timestamp.fromBytes(wrong as Uint8Array), { code: "invalid_argument" });
    for (const above of ["18ea3fd0c5c8f67a0000000000000000", 5n, null])
      await assert.rejects(client.timestamp({ above: above as unknown as Timestamp }), { code: "invalid_argument" });
  }));

void test("a node that requires TLS for credentials says so", async () => {
  await using cluster = await Cluster.start(1);
  cluster.reply = (r) => (r.args[0] === "AUTH" ? "-ERR this port requires TLS\r\n" : undefined);
  const options: Options = { addrs: cluster.addrs, credentials: { name: "ada", secret: "x" } };
  await assert.rejects(Client.connect(options, soon), { code: "unauthorized", message: /may require TLS/ });
});

void test("credentials that cannot be had are named", async () => {
  await using cluster = await Cluster.start(1);
  const failing = { addrs: cluster.addrs, credentials: () => Promise.reject(new Error("sealed")) };
  const [addr] = cluster.addrs;
  const message = new RegExp(`; ${addr}: the function for credentials failed: sealed`);
  await assert.rejects(Client.connect(failing, { deadlineMs: 200 }), { code: "deadline_exceeded", message });
  const none = { addrs: cluster.addrs, credentials: () => undefined } as unknown as Options;
  await assert.rejects(Client.connect(none, soon), { code: "invalid_argument", message: /credentials/ });
});

void test("a node that is silent is named", async () => {
  await using cluster = await Cluster.start(1);
  cluster.reply = () => ""; // to everything
  const [addr] = cluster.addrs;
  const message = `no answer in time; ${addr}: it has not answered yet`;
  await assert.rejects(Client.connect({ addrs: cluster.addrs }, { deadlineMs: 100 }), { code: "deadline_exceeded", message });
});

void test("a secret is in no error and in nothing that is printed", async () => {
  const secret = "open sesame";
  await using cluster = await Cluster.start(1);
  const refuse: Reply = (r) => (r.args[0] === "AUTH" ? `-WRONGPASS ${r.args.join(" ")}\r\n` : undefined);
  cluster.reply = refuse;
  const options: Options = { addrs: cluster.addrs, credentials: { name: "ada", secret } };
  const error: unknown = await Client.connect(options, soon).catch((e: unknown) => e);
  assert.equal(codeOf(error), "unauthorized");
  assert.doesNotMatch(inspect(error, { depth: 10 }), /sesame/);
  cluster.reply = () => undefined;
  await using client = await Client.connect(options, soon);
  assert.doesNotMatch(inspect(client, { depth: 10, showHidden: true }), /sesame/);
  assert.deepEqual(cluster.named("AUTH").at(-1), ["AUTH", "ada", secret]);
});

void test("a generator makes IDs under a lease, and returns it", () =>
  withClient(async (client, cluster) => {
    let now = Date.now();
    const generator = await client.generator({ now: () => now }, soon);
    assert.equal(generator.worker, 7);
    const ids = [await generator.next(soon), generator.tryNext(), ...(await generator.nextN(5000, soon))];
    assert.equal(new Set(ids).size, 5002);
    assert.deepEqual(new Set(ids.map((id) => generator.layout.worker(id))), new Set([7]));
    now = generator.lease.end + 1000;
    assert.throws(() => generator.tryNext(), { code: "overloaded" });
    await assert.rejects(generator.next({ deadlineMs: 5 }), { code: "deadline_exceeded" });
    await generator.close();
    await assert.rejects(generator.next(), { code: "closed" });
    assert.equal(cluster.leading.named("WORKER").at(-1)?.[1], "RELEASE");
  }));
