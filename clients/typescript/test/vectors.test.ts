// Every vector of conformance/vectors.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { pauseAfter, pauseMax, quotaPause } from "../src/backoff.js";
import { Batch, type Kind, kindIds, kinds16, kinds64 } from "../src/batch.js";
import { Malformed, classOf, decodeRefusal } from "../src/errors.js";
import { Parser, type Value, limits, readCluster, readView, timestampsRequest } from "../src/resp.js";
import { type Lease, Sequence, reasonError } from "../src/sequence.js";
import { Layout, formatBase62, formatHex, parseBase62, parseHex, parseId } from "../src/snowflake.js";
import { Range, Timestamp, parseTimestamp64, parts64, step16 } from "../src/timestamp.js";

const root = new URL("../../../../conformance/vectors/", import.meta.url);

// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the type of the file
function vectors<T>(file: string): T {
  return JSON.parse(readFileSync(new URL(file, root), "utf8")) as T;
}

/** Calls fn for each of the cases, of which there must be some. */
function each<T>(cases: readonly T[], fn: (c: T) => void): void {
  assert.ok(cases.length > 0, "no vectors");
  for (const c of cases) {
    try {
      fn(c);
    } catch (cause) {
      throw new Error(JSON.stringify(c), { cause });
    }
  }
}

const isInvalid = { code: "invalid_argument" };

interface Form {
  hex: string;
  time: string;
  index: string;
  u64: string;
  physical: string;
  logical: number;
}

void test("timestamps", () => {
  const v = vectors<{
    forms: Form[];
    places: Form[];
    order: string[];
    ranges: { first: string; count: string; last: string }[];
    invalid: string[];
    invalid64: string[];
  }>("timestamps.json");
  each(v.forms, (c) => {
    const ts = Timestamp.parse(c.hex);
    assert.deepEqual([ts.time, ts.index, ts.to64(), ts.toString()], [BigInt(c.time), BigInt(c.index), BigInt(c.u64), c.hex]);
    assert.deepEqual(parts64(ts.to64()), { physical: BigInt(c.physical), logical: c.logical });
    assert.deepEqual(Timestamp.of(ts.time, ts.index), ts);
    assert.deepEqual(Timestamp.fromBytes(ts.toBytes()), ts);
    assert.equal(JSON.stringify(ts), `"${c.hex}"`);
  });
  each(v.places, (c) => {
    assert.equal(Timestamp.from64(parseTimestamp64(c.u64)).toString(), c.hex);
    assert.deepEqual(parts64(BigInt(c.u64)), { physical: BigInt(c.physical), logical: c.logical });
  });
  each(v.ranges, (c) => {
    const range = new Range(Timestamp.parse(c.first), Number(c.count), step16);
    assert.equal(range.last.toString(), c.last);
  });
  each(v.invalid, (text) => assert.throws(() => Timestamp.parse(text), isInvalid));
  each(v.invalid64, (text) => assert.throws(() => parseTimestamp64(text), isInvalid));
  const order = v.order.map((text) => Timestamp.parse(text));
  for (const [i, a] of order.entries()) {
    for (const [j, b] of order.entries()) {
      assert.equal(a.compare(b), Math.sign(i - j));
      assert.equal(a.before(b), i < j);
      assert.equal(a.equals(b), i === j);
      assert.equal(a < b, i < j);
    }
  }
});

void test("ids", () => {
  const v = vectors<{
    layouts: { layout: string; epoch: number; valid: boolean }[];
    ids: {
      decimal: string;
      base62: string;
      hex: string;
      layout: string;
      epoch: number;
      millis: number;
      worker: number;
      datacenter: number;
      in_datacenter: number;
      sequence: number;
    }[];
    invalid: { form: "decimal" | "base62" | "hex"; text: string }[];
  }>("ids.json");
  each(v.layouts, (c) => {
    if (c.valid) assert.equal(Layout.parse(c.layout, c.epoch).toString(), c.layout.replace("/0/10/", "/10/"));
    else assert.throws(() => Layout.parse(c.layout, c.epoch), isInvalid);
  });
  each(v.ids, (c) => {
    const id = parseId(c.decimal);
    const layout = Layout.parse(c.layout, c.epoch);
    assert.deepEqual([id.toString(), formatBase62(id), formatHex(id)], [c.decimal, c.base62, c.hex]);
    assert.deepEqual([parseBase62(c.base62), parseHex(c.hex)], [id, id]);
    assert.deepEqual([layout.millis(id), layout.worker(id), layout.sequence(id)], [c.millis, c.worker, c.sequence]);
    assert.deepEqual([layout.datacenter(id), layout.inDatacenter(id)], [c.datacenter, c.in_datacenter]);
  });
  const parsers = { decimal: parseId, base62: parseBase62, hex: parseHex };
  each(v.invalid, (c) => assert.throws(() => parsers[c.form](c.text), isInvalid));
});

void test("errors", () => {
  const v = vectors<{
    lines: { line: string; code: string; class: string; leader?: string; retry_after_ms?: number }[];
    malformed: string[];
  }>("errors.json");
  each(v.lines, (c) => {
    const got = decodeRefusal(c.line);
    assert.deepEqual([got.code, classOf(got.code), got.leader, got.retryAfterMs], [c.code, c.class, c.leader, c.retry_after_ms ?? 0]);
  });
  each(v.malformed, (line) => assert.throws(() => decodeRefusal(line), Malformed));
});

void test("backoff", () => {
  const v = vectors<{
    pauses: { kind: keyof typeof pauseMax; failures: number; min: number; max: number }[];
    quota: { retry_after_ms: number; failures: number; min: number; max: number }[];
  }>("backoff.json");
  const largest = 1 - 1e-9;
  const within = (pause: (random: () => number) => number, c: { min: number; max: number }): void => {
    const [least, most] = [1000 * pause(() => 0), 1000 * pause(() => largest)];
    assert.ok(least >= c.min && most < c.max, `${least} to ${most}`);
    assert.ok(least < c.min + 1 && most > c.max - 2, `${least} to ${most} is less than allowed`);
  };
  each(v.pauses, (c) => within((random) => pauseAfter(c.failures, pauseMax[c.kind], random), c));
  each(v.quota, (c) => within((random) => quotaPause(c.retry_after_ms, c.failures, random), c));
});

interface Step {
  now: number;
  take?: number;
  first?: string;
  last?: string;
  refused?: Parameters<typeof reasonError>[0];
  extend?: number;
  stop?: number;
}

void test("generator", () => {
  const v = vectors<{
    generators: { layout: string; epoch: number; worker: number; lease: [number, number] | null; ahead_max_ms: number; steps: Step[] }[];
  }>("generator.json");
  const codes: Record<string, string> = {
    exhausted: "overloaded",
    lease_ended: "overloaded",
    lease_not_begun: "overloaded",
    batch: "invalid_argument",
  };
  each(v.generators, (c) => {
    const lease: Lease | null = c.lease && { start: c.lease[0], end: c.lease[1] };
    const sequence = new Sequence(Layout.parse(c.layout, c.epoch), c.worker, lease, c.ahead_max_ms);
    for (const step of c.steps) {
      if (step.extend !== undefined) sequence.extend(step.extend);
      if (step.stop !== undefined) assert.equal(sequence.stop(), step.stop);
      if (step.take === undefined) continue;
      const got = sequence.take(step.now, step.take);
      if (typeof got === "string") {
        assert.equal(got, step.refused, JSON.stringify(step));
        assert.equal(reasonError(got).code, codes[got] ?? "clock");
      } else {
        assert.deepEqual(
          [got[0], got.at(-1), got.length],
          [BigInt(step.first ?? -1), BigInt(step.last ?? -1), step.take],
          JSON.stringify(step),
        );
      }
    }
  });
});

interface Resp {
  about: string;
  method: string;
  count: string;
  mode?: "quorum" | "lease";
  floor?: string;
  asked: string;
  wire: string;
  first?: string;
  ids?: string[];
  error?: string;
  malformed?: boolean;
  incomplete?: boolean;
  leader: string;
  members: string[];
  cluster: string | null;
}

const resp = vectors<Record<"requests" | "answers" | "slots" | "clusters", Resp[]>>("resp.json");

function kindOf(c: Resp): Kind {
  if (c.method === "ids") return kindIds;
  const kind = (c.method === "timestamps64" ? kinds64 : kinds16).find(({ mode }) => mode === c.mode);
  assert.ok(kind);
  return kind;
}

function batchOf(c: Resp): Batch {
  const batch = new Batch(kindOf(c), () => undefined);
  batch.count = Number(c.count);
  return batch;
}

void test("requests", () => {
  each(resp.requests, (c) => assert.equal(batchOf(c).line(c.floor ? Timestamp.parse(c.floor) : Timestamp.zero), c.wire));
  assert.equal(timestampsRequest("TS", 1, undefined, Timestamp.zero), "*2\r\n$2\r\nTS\r\n$1\r\n1\r\n");
});

/** Reads a wire in pieces of some size; undefined if it is incomplete. */
function read<T>(c: Resp, size: number, take: (parser: Parser) => T | undefined): T | undefined {
  const bytes = Buffer.from(c.wire, "latin1");
  const parser = new Parser();
  for (let at = 0; at < bytes.length; at += size) {
    parser.push(bytes.subarray(at, at + size));
    const got = take(parser);
    if (got === undefined) continue;
    if (parser.rest > 0 || at + size < bytes.length) throw new Malformed("more than the answer");
    return got;
  }
  return undefined;
}

/** Checks a reader of answers with all bytes at once, and in pieces. */
function judge<T>(c: Resp, take: (parser: Parser) => T | undefined, check: (got: T) => void): void {
  for (const size of [1e6, 7, 1]) {
    if (c.malformed) {
      assert.throws(() => read(c, size, take), Malformed);
      continue;
    }
    const got = read(c, size, take);
    assert.equal(got === undefined, c.incomplete ?? false);
    if (got !== undefined) check(got);
  }
}

void test("answers", () => {
  each(resp.answers, (c) => {
    let batch: Batch | undefined;
    const take = (parser: Parser): Batch | undefined => {
      batch ??= batchOf(c);
      if (!batch.take(parser)) return undefined;
      const taken = batch;
      batch = undefined;
      return taken;
    };
    judge(c, take, (got) => {
      batch = undefined;
      if (c.error) assert.equal(got.refusal?.message, decodeRefusal(c.error).message);
      else if (c.method === "ids") assert.deepEqual(got.ids.map(String), c.ids);
      else assert.equal(c.method === "timestamps64" ? got.first64.toString() : got.first.toString(), c.first);
    });
    batch = undefined;
  });
});

void test("slots and clusters", () => {
  const value = (parser: Parser): Value | undefined => parser.value(limits);
  each(resp.slots, (c) => {
    const view = (parser: Parser): object | undefined => {
      const v = value(parser);
      return v?.kind === "-" ? { error: v.text } : v && readView(v, c.asked);
    };
    judge(c, view, (got) => assert.deepEqual(got, c.error ? { error: c.error } : { leader: c.leader, members: c.members }));
  });
  each(resp.clusters, (c) => {
    const cluster = (parser: Parser): { id: string | null } | undefined => {
      const v = value(parser);
      return v && { id: readCluster(v) };
    };
    judge(c, cluster, (got) => assert.equal(got.id, c.cluster));
  });
});
