// Node's own http2, over TLS and with prior knowledge. Arguments: HOST:PORT of each node, the leader first.

import assert from "node:assert/strict";
import { connect } from "node:http2";
import { ascending, distinct, done } from "./check.mjs";

/** Sends one request, and returns its status, code of failure and body. */
const ask = (session, headers, body) =>
  new Promise((resolve, reject) => {
    const stream = session.request(headers, { endStream: body === undefined });
    const parts = [];
    let status;
    stream.on("response", (head) => (status = head[":status"]));
    stream.on("data", (part) => parts.push(part));
    stream.on("end", () => resolve({ status, body: Buffer.concat(parts) }));
    stream.on("error", reject);
    if (body !== undefined) stream.end(body);
  });

const codeOf = (answer) => JSON.parse(answer.body).error.code;
const lines = (answer) => answer.body.toString().trim().split("\n");

for (const scheme of ["http", "https"]) {
  const session = connect(`${scheme}://${process.argv[2]}`, { rejectUnauthorized: false });
  for (let i = 0; i < 100; i++) ascending((await ask(session, { ":path": "/timestamp" })).body);
  const many = await Promise.all(Array.from({ length: 200 }, () => ask(session, { ":path": "/api/snowflake?n=1000" })));
  for (const answer of many) distinct(...lines(answer));

  const large = await ask(session, { ":path": "/api/snowflake?n=65536" }); // needs the windows to move
  assert.equal(new Set(lines(large)).size, 65536);
  const refused = await ask(session, { ":path": "/timestamp?n=0" });
  assert.deepEqual([refused.status, codeOf(refused)], [400, "invalid_argument"]);
  const head = await ask(session, { ":path": "/members", ":method": "HEAD" });
  assert.deepEqual([head.status, head.body.length], [200, 0]);
  const posted = await ask(session, { ":path": "/timestamp", ":method": "POST" }, Buffer.alloc(300_000));
  assert.equal(posted.status, 405);

  // An event comes at once, and the stream can be taken back.
  const stream = session.request({ ":path": "/live/state/stream" });
  await new Promise((resolve, reject) => stream.on("data", (part) => part.includes("data:") && resolve()).on("error", reject));
  stream.close();
  ascending((await ask(session, { ":path": "/timestamp" })).body);
  await new Promise((resolve) => session.close(resolve));
}
done("node:http2");
