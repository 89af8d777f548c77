// grpc-js, with messages that @grpc/proto-loader reads from the schema. Arguments: the directory of the schema, and HOST:PORT of
// each node, the leader first.

import assert from "node:assert/strict";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { ascending, distinct, done } from "./check.mjs";

const [schema, ...addrs] = process.argv.slice(2);
const definition = loader.loadSync("isotone/v1/isotone.proto", { includeDirs: [schema], longs: String, defaults: true });
const { Timestamps, Ids } = grpc.loadPackageDefinition(definition).isotone.v1;
const [leader, follower] = addrs.map((addr) => ({
  timestamps: new Timestamps(addr, grpc.credentials.createInsecure()),
  ids: new Ids(addr, grpc.credentials.createInsecure()),
}));

const call = (client, method, request) =>
  new Promise((resolve, reject) => client[method](request, (error, answer) => (error ? reject(error) : resolve(answer))));

for (let i = 0; i < 100; i++) ascending((await call(leader.timestamps, "Get", { count: i + 1 })).wide);
for (const node of [leader, follower]) distinct(...(await call(node.ids, "Get", { count: 1000 })).ids);

await new Promise((resolve, reject) => {
  const stream = leader.timestamps.Stream();
  let expected = 0;
  stream.on("data", ({ id, got }) => {
    assert.equal(id, String(expected++));
    ascending(got.wide);
  });
  stream.on("error", reject);
  stream.on("end", () => resolve(assert.equal(expected, 1000)));
  for (let i = 0; i < 1000; i++) stream.write({ id: i });
  stream.end();
});

const refused = async (promise, code, ...words) => {
  const error = await promise.then(() => assert.fail("no error"), (error) => error);
  assert.equal(error.code, code, error.message);
  const details = error.metadata.get("grpc-status-details-bin")[0].toString("latin1");
  for (const word of words) assert.ok(details.includes(word), `${word} is not in ${details}`);
};
await refused(call(leader.timestamps, "Get", { count: 0 }), grpc.status.INVALID_ARGUMENT, "invalid_argument", "isotone");
await refused(call(follower.timestamps, "Get", {}), grpc.status.UNAVAILABLE, "not_leader", "leader", addrs[0]);
for (const { timestamps, ids } of [leader, follower]) timestamps.close(), ids.close();
done("grpc-js");
