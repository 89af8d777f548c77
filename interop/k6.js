// k6: every answer is right, over HTTP/1.1. TARGET is the address of the leader.

import http from "k6/http";
import { check } from "k6";

export const options = { vus: 8, iterations: 2000, thresholds: { checks: ["rate==1"] } };

const seen = new Set(); // of one virtual user
let last = "";

export default function () {
  const body = http.get(`http://${__ENV.TARGET}/timestamp?format=json`).json();
  const { hex } = body.timestamps[0];
  const ids = http.get(`http://${__ENV.TARGET}/api/snowflake?n=5`).body.trim().split("\n");
  check(null, {
    "timestamps ascend": () => hex > last,
    "IDs are distinct": () => ids.length === 5 && ids.every((id) => !seen.has(id) && seen.add(id)),
  });
  last = hex;
}
