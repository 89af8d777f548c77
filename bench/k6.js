// k6: VUS virtual users ask URL for SECONDS, each one request after the other, and every answer is
// checked. KIND says how: "timestamp" (each larger than the last of its user), "snowflake" (no ID
// twice within a user), "static" (16 bytes). bench/k6.sh runs it. It prints one line:
//
//   requests, requests per second, p50, p90, p99, maximum (microseconds), failed, wrong
//
// A request has failed if there was no answer with status 200. "wrong" counts answers that break
// a promise, and those that could not be checked. Each user logs its first failure.

import http from "k6/http";
import { check } from "k6";

const { URL, VUS, SECONDS, KIND } = __ENV;

export const options = {
  scenarios: {
    load: { executor: "constant-vus", vus: Number(VUS), duration: `${SECONDS}s`, gracefulStop: "20s" },
  },
  summaryTrendStats: ["med", "p(90)", "p(99)", "max"],
  // A request to the same address is one time series, not one for each name and status.
  systemTags: ["expected_response"],
};
http.setResponseCallback(http.expectedStatuses(200));

// State of one virtual user: k6 runs this file once for each.
let last = [0, 0, 0, 0];
const seen = new Set();
let told = false; // that a request has failed

// ascends compares the 16 bytes of a timestamp with those of the last one.
function ascends(body) {
  const view = new DataView(body);
  const now = [0, 4, 8, 12].map((at) => view.getUint32(at));
  const differs = now.findIndex((word, i) => word !== last[i]);
  const ok = body.byteLength === 16 && differs >= 0 && now[differs] > last[differs];
  last = now;
  return ok;
}

function isNew(body) {
  if (!/^[0-9]{1,19}$/.test(body) || seen.has(body)) {
    return false;
  }
  seen.add(body);
  return true;
}

const kinds = {
  timestamp: { responseType: "binary", checks: { "timestamps ascend": (r) => ascends(r.body) } },
  snowflake: { responseType: "text", checks: { "IDs are distinct": (r) => isNew(r.body.trim()) } },
  static: { responseType: "text", checks: { "16 bytes": (r) => r.body.length === 16 } },
};
const { responseType, checks } = kinds[KIND];
const params = { responseType, timeout: "20s" };

export default function () {
  const response = http.get(URL, params);
  if (response.status === 200) {
    check(response, checks);
  } else if (!told) {
    told = true;
    console.error(`status ${response.status} ${reason(response)}`);
  }
}

// reason says in one line why a request failed.
function reason({ error, body }) {
  if (!body) {
    return error;
  }
  const text = typeof body === "string" ? body : String.fromCharCode(...new Uint8Array(body.slice(0, 120)));
  return text.slice(0, 120).trim().replace(/\s+/g, " ");
}

export function handleSummary({ metrics }) {
  const { http_reqs: all, http_req_duration: took, http_req_failed: failed, checks: checked } = metrics;
  const bad = failed.values.passes; // of the rate of failures
  const right = checked ? checked.values.passes : 0;
  const micros = ["med", "p(90)", "p(99)", "max"].map((q) => Math.round(took.values[q] * 1000));
  return { stdout: [all.values.count, all.values.rate.toFixed(1), ...micros, bad, all.values.count - bad - right].join(" ") + "\n" };
}
