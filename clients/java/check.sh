#!/usr/bin/env bash
# Builds, lints and tests the client, and has the conformance kit play nodes to it if ISOTONE names an isotone binary
# that has the command. Needs a JDK of 17 or later and Maven, which keeps what it loads in its own directory.
set -euo pipefail
cd "$(dirname "$0")"

mvn -q -B package dependency:build-classpath -Dmdep.includeScope=test -Dmdep.outputFile=target/classpath
javac --release 17 -Xlint:all -Werror -cp target/classes -d target/bench bench/Bench.java

if [ -n "${ISOTONE:-}" ] && "$ISOTONE" conformance --help >/dev/null 2>&1; then
  "$ISOTONE" conformance run -- \
    java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "target/classes:target/test-classes:$(cat target/classpath)" io.isotone.Driver
fi
