#!/usr/bin/env bash
# Measures streams of a live document: 100 streams on each of 100 connections of HTTP/2, and as many on a connection of
# HTTP/1.1 each, without TLS. The document has 1,000 bytes and changes once a second; the node looks for that ten times a
# second. Each kind has a node of its own, and prints a row of a Markdown table.
#
#   bench/streams.sh [FLAGS]      flags of bench/streams for both, such as --changes 30, --bytes 4000
#
# The memory for a stream is measured when all have the first document, and at the end. Needs Linux, go, curl and 13,000 open
# files (ulimit -n). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/lib.sh
need go curl || exit 2
build streams
printf '{"n":0,"pad":""}' >"$dir/doc.json"
export LIVE=doc=file:$dir/doc.json LIVE_INTERVAL_MS=100

printf '| connections × streams | memory for a stream | CPU to open | from the change to the last reader, median | worst | CPU for an event |\n|---|---:|---:|---:|---:|---:|\n'
for kind in "100 100" "10000 0"; do
  read -r connections streams <<<"$kind"
  start_nodes 1 30800
  "$dir/streams" --connections "$connections" --streams "$streams" "$@" 127.0.0.1:30811 "${nodes[0]}" "$dir/doc.json"
done
