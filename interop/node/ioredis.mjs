// ioredis, plain and as a cluster client, in both protocols. Arguments: HOST:PORT of each node, the
// leader first.

import assert from "node:assert/strict";
import Redis from "ioredis";
import { ascending, distinct, done, refused } from "./check.mjs";

const nodes = process.argv.slice(2).map((addr) => ({ host: addr.split(":")[0], port: Number(addr.split(":")[1]) }));

for (const protocol of [2, 3]) {
  const r = new Redis({ ...nodes[0], protocol });
  distinct(...(await r.call("SNOWFLAKE", 5)), await r.call("SNOWFLAKE"));
  distinct(...(await r.call("SNOWFLAKE", 1000, "AS", "STRING")), await r.call("SNOWFLAKE", "AS", "STRING"));
  for (let i = 0; i < 100; i++) ascending(await r.callBuffer("TS"));
  ascending(...(await Promise.all(Array.from({ length: 1000 }, () => r.callBuffer("TS", 10)))));

  const pipeline = r.pipeline();
  const block = r.multi();
  for (let i = 0; i < 100; i++) {
    pipeline.call("SNOWFLAKE", 2);
    block.call("SNOWFLAKE", "AS", "STRING");
  }
  for (const [error, answer] of await pipeline.exec()) distinct(...(assert.equal(error, null), answer));
  for (const [error, answer] of await block.exec()) distinct((assert.equal(error, null), answer));
  ascending(...(await r.multi().callBuffer("TS").callBuffer("TS", 5).exec()).map(([error, ts]) => (assert.equal(error, null), ts)));

  await refused(r.call("TS", 0), "ERR");
  await refused(r.call("NOSUCH"), "ERR");
  await refused(r.client("TRACKING", "ON"), "ERR");
  await r.quit();

  const follower = new Redis({ ...nodes[1], protocol });
  await refused(follower.callBuffer("TS"), "MOVED");
  await refused(follower.multi().callBuffer("TS").exec(), "MOVED");
  distinct(...(await follower.call("SNOWFLAKE", 5)));
  await follower.quit();

  const cluster = new Redis.Cluster([nodes[2]], { redisOptions: { protocol } });
  for (let i = 0; i < 100; i++) ascending(await cluster.callBuffer("TS", i + 1));
  ascending(...(await Promise.all(Array.from({ length: 100 }, () => cluster.callBuffer("TS", 1)))));
  distinct(...(await cluster.call("SNOWFLAKE", 100)), await cluster.call("SNOWFLAKE"));
  await cluster.quit();
}
done("ioredis");
