#!/usr/bin/env bash
# Builds a release into OUT: a binary and its SBOM for each platform, SHA256SUMS, and its signature
# if there is a key. The same commit and the same version of Go give the same bytes, in every
# directory and at every time. docs/release.md says how to release, and how to verify.
#
#	release/build.sh VERSION [OUT]
#
# PLATFORMS        what to build, as in "linux/amd64 darwin/arm64"
# RELEASE_KEY      private key of OpenSSH, to sign with; without it nothing is signed
# ALLOWED_SIGNERS  who may sign, by default release/allowed_signers
# REVISION         the commit, by default that of the working tree, which must be clean then
set -euo pipefail

fail() { echo "release: $*" >&2; exit 1; }

version=${1:-} out=${2:-dist}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "want a version such as v1.2.3, not \"$version\""
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || fail "$out is not empty"
key=${RELEASE_KEY:+$(realpath "$RELEASE_KEY")} signers=${ALLOWED_SIGNERS:+$(realpath "$ALLOWED_SIGNERS")}
cd "$(dirname "$0")/.."
signers=${signers:-$PWD/release/allowed_signers}
if [ -z "${REVISION:-}" ]; then
  REVISION=$(git rev-parse HEAD)
  [ -z "$(git status --porcelain)" ] || fail "the working tree differs from the commit $REVISION: commit or stash"
fi

# Nothing of this machine gets into a binary: no path, no cgo, no flags, no features of its
# processor. The commit is given here, because Go would record its time as well.
export GOFLAGS=-mod=readonly GOWORK=off GOEXPERIMENT= GOFIPS140=off GOAMD64=v1 GOARM64=v8.0
ldflags="-s -w -buildid= -X main.version=$version -X main.revision=$REVISION"

sbom=$(mktemp)
trap 'rm -f "$sbom"' EXIT
go build -o "$sbom" ./release/sbom
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}; do
  os=${platform%/*} arch=${platform#*/}
  name=isotone_${version}_${os}_${arch}
  [ "$os" != windows ] || name=$name.exe
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$out/$name" ./cmd/isotone
  "$sbom" "$version" "$out/$name" >"$out/$name.cdx.json"
done

cd "$out"
sums=$(command -v sha256sum || echo "shasum -a 256")
$sums isotone_* >SHA256SUMS
if [ -z "$key" ]; then
  echo "release: $out has no signature: set RELEASE_KEY" >&2
  exit
fi
ssh-keygen -q -Y sign -f "$key" -n isotone-release SHA256SUMS
ssh-keygen -q -Y verify -f "$signers" -I releases@isotone -n isotone-release -s SHA256SUMS.sig <SHA256SUMS ||
  { rm SHA256SUMS.sig; fail "nobody could verify the signature: $signers does not have the public key of RELEASE_KEY"; }
