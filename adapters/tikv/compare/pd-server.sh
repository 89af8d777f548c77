#!/usr/bin/env bash
# Builds PD's server from its Go module.
#
#   adapters/tikv/compare/pd-server.sh FILE
#
# The version is the last one before the branch of PD 8.1 that is published as a module. Its dashboard,
# which is most of the build, is left out.
set -euo pipefail
version=v1.1.0-beta.0.20240407022249-7179657d129b
[ $# = 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
mkdir -p "$(dirname "$1")"
file=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cd "$source"
go mod init example.com/none >/dev/null 2>&1
downloaded=$(GOFLAGS=-mod=mod go mod download -json "github.com/tikv/pd@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
[ -n "$downloaded" ] || { echo "$0: github.com/tikv/pd@$version cannot be downloaded" >&2; exit 1; }
rm -f go.mod
cp -r "$downloaded/." .
chmod -R u+w .
GOFLAGS=-mod=mod go build -trimpath -tags without_dashboard -o "$file" ./cmd/pd-server
