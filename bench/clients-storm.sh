#!/usr/bin/env bash
# Restarts three nodes on this machine one after the other (SIGTERM), then kills nodes (SIGKILL), the leader every second time, while
# the clients in all languages call them at once. Prints what each client saw. Fails if a call failed or an answer was wrong.
#
#   bench/clients-storm.sh [LANGUAGE...]      default: go python typescript java rust
#
# ROLLS (100) is how often all nodes are restarted, KILLS (50) how often one is killed, CALLERS (8) how many callers each client has,
# and DEADLINE (2s) what a call may take. RECORD=1 adds a line for each client to docs/evidence/storms.csv. Needs go, and for each language
# what its check.sh needs, which is to be run before. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- go python typescript java rust
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# driver_LANGUAGE builds the driver of the client for the conformance kit, and sets driver, its command line.
driver_go() {
  go build -o "$dir/go" ./clients/go
  driver=("$dir/go")
}
driver_python() { driver=(python3 clients/python/driver.py); }
driver_typescript() {
  (cd clients/typescript && npm run --silent build:all)
  driver=(node clients/typescript/build/driver/main.js)
}
driver_java() {
  local target=clients/java/target
  (cd clients/java && mvn -q -B -o test-compile dependency:build-classpath -Dmdep.includeScope=test -Dmdep.outputFile=target/classpath)
  driver=(java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$target/classes:$target/test-classes:$(cat $target/classpath)" io.isotone.Driver)
}
driver_rust() {
  local target=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-rust}
  (cd clients/rust && CARGO_TARGET_DIR=$target CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet --locked --all-features --example conformance)
  driver=("$target/debug/examples/conformance")
}

drivers=()
for language; do
  "driver_$language"
  drivers+=(-- "${driver[@]}")
done
go build -o "$dir/isotone" ./cmd/isotone
go build -o "$dir/storm" ./bench/storm
"$dir/storm" --isotone "$dir/isotone" --rolls "${ROLLS:-100}" --kills "${KILLS:-50}" --callers "${CALLERS:-8}" --deadline "${DEADLINE:-2s}" "${drivers[@]}"
