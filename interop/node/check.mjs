// What every client of this directory demands. Timestamps are Buffers of 16 bytes, IDs strings.

import assert from "node:assert/strict";

const ids = new Set();
let last = Buffer.alloc(16);

/** Demands timestamps that are larger than all before. */
export const ascending = (...timestamps) => {
  for (const ts of timestamps) {
    assert.ok(Buffer.isBuffer(ts) && ts.length === 16, `not a timestamp: ${ts}`);
    assert.ok(Buffer.compare(last, ts) < 0, `${ts.toString("hex")} after ${last.toString("hex")}`);
    last = ts;
  }
};

/** Demands IDs that are exact, and that nobody had before. */
export const distinct = (...list) => {
  for (const id of list) {
    assert.equal(typeof id, "string", `not exact: ${id}`);
    assert.match(id, /^[1-9][0-9]{15,18}$/);
    assert.ok(!ids.has(id), `${id} twice`);
    ids.add(id);
  }
};

/** Demands an error whose message begins with a word. */
export const refused = (promise, word) =>
  assert.rejects(promise, (error) => new RegExp(`^${word} `).test(error.message) || assert.fail(error.message));

export const done = (name) => console.log(`${name}: ${ids.size} IDs`);
