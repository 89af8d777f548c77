// node-redis, plain and as a cluster client, in both protocols. Arguments: HOST:PORT of each node,
// the leader first.

import { createClient, createCluster, RESP_TYPES } from "redis";
import { ascending, distinct, done, refused } from "./check.mjs";

const urls = process.argv.slice(2).map((addr) => `redis://${addr}`);
const bytes = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };

for (const RESP of [2, 3]) {
  const r = await createClient({ url: urls[0], RESP }).connect();
  const ts = (...args) => r.withTypeMapping(bytes.typeMapping).sendCommand(["TS", ...args]);
  distinct(...(await r.sendCommand(["SNOWFLAKE", "5"])), await r.sendCommand(["SNOWFLAKE"]));
  distinct(...(await r.sendCommand(["SNOWFLAKE", "1000", "AS", "STRING"])));
  for (let i = 0; i < 100; i++) ascending(await ts());
  ascending(...(await Promise.all(Array.from({ length: 1000 }, () => ts("10")))));

  const block = r.multi();
  for (let i = 0; i < 100; i++) block.addCommand(["SNOWFLAKE", "2"]);
  for (const answer of await block.exec()) distinct(...answer);
  distinct(...(await r.multi().addCommand(["SNOWFLAKE"]).addCommand(["SNOWFLAKE", "AS", "STRING"]).execAsPipeline()));

  await refused(ts("0"), "ERR");
  await refused(r.sendCommand(["NOSUCH"]), "ERR");
  await refused(r.sendCommand(["CLIENT", "TRACKING", "ON"]), "ERR");
  r.destroy();

  const follower = await createClient({ url: urls[1], RESP }).connect();
  await refused(follower.sendCommand(["TS"]), "MOVED");
  await refused(follower.multi().addCommand(["TS"]).exec(), "MOVED");
  distinct(...(await follower.sendCommand(["SNOWFLAKE", "5"])));
  follower.destroy();

  const cluster = await createCluster({ rootNodes: [{ url: urls[2] }], defaults: { RESP } }).connect();
  for (let i = 0; i < 100; i++) ascending(await cluster.sendCommand("1", false, ["TS", `${i + 1}`], bytes));
  distinct(...(await cluster.sendCommand("1", false, ["SNOWFLAKE", "100"])));
  distinct(await cluster.sendCommand(undefined, true, ["SNOWFLAKE"]));
  cluster.destroy();
}
done("node-redis");
