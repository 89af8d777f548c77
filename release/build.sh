#!/usr/bin/env bash
# Builds a release into OUT: a binary and its SBOM for each platform, packages, an image, a formula,
# SHA256SUMS, and its signature if there is a key. The same commit and the same version of Go give the same bytes, in every
# directory and at every time. docs/release.md says how to release, and how to verify.
#
#	release/build.sh VERSION [OUT]
#
# PLATFORMS        what to build, as in "linux/amd64 darwin/arm64"
# RELEASE_KEY      private key of OpenSSH, to sign with; without it nothing is signed
# ALLOWED_SIGNERS  who may sign, by default release/allowed_signers
# REVISION         the commit, by default that of the working tree, which must be clean then
# SOURCE_DATE_EPOCH  when it was made, in unix seconds; without it the repository says so
set -euo pipefail

fail() { echo "release: $*" >&2; exit 1; }

version=${1:-} out=${2:-dist}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "want a version such as v1.2.3, not \"$version\""
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || fail "$out is not empty"
[ -z "${RELEASE_KEY:-}" ] || [ -r "$RELEASE_KEY" ] || fail "RELEASE_KEY: cannot read $RELEASE_KEY"
[ -z "${ALLOWED_SIGNERS:-}" ] || [ -r "$ALLOWED_SIGNERS" ] || fail "ALLOWED_SIGNERS: cannot read $ALLOWED_SIGNERS"
key=${RELEASE_KEY:+$(realpath "$RELEASE_KEY")}
signers=${ALLOWED_SIGNERS:+$(realpath "$ALLOWED_SIGNERS")}
cd "$(dirname "$0")/.."
signers=${signers:-$PWD/release/allowed_signers}
if [ -z "${REVISION:-}" ]; then
  REVISION=$(git rev-parse HEAD)
  [ -z "$(git status --porcelain)" ] || fail "the working tree differs from the commit $REVISION: commit or stash"
fi

seconds=${SOURCE_DATE_EPOCH:-$(git show -s --format=%ct "$REVISION")}
date=$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r "$seconds" +%Y-%m-%dT%H:%M:%SZ) # GNU, BSD

# Nothing of this machine gets into a binary: no path, no cgo, no flags, no features of its
# processor. The commit is given here: Go would read it from the repository, which may be missing.
export GOFLAGS=-mod=readonly GOWORK=off GOEXPERIMENT= GOFIPS140=off GOAMD64=v1 GOARM64=v8.0
export LC_ALL=C CGO_ENABLED=0
ldflags="-s -w -buildid= -X main.version=$version -X main.revision=$REVISION -X main.date=$date"
build=(go build -trimpath -buildvcs=false -ldflags "$ldflags" -o)

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# -trimpath: what they import of the standard library is compiled once, for them and for the binaries.
go build -trimpath -buildvcs=false -o "$dir/" ./release/sbom ./release/licenses
(cd release/tools && go build -trimpath -buildvcs=false -o "$dir/tools" .)
binaries=() lives=()
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}; do
  os=${platform%/*} arch=${platform#*/}
  name=isotone_${version}_${os}_${arch}
  [ "$os" != windows ] || name=$name.exe
  GOOS=$os GOARCH=$arch "${build[@]}" "$out/$name" ./cmd/isotone
  "$dir/sbom" "$version" "$out/$name" >"$out/$name.cdx.json"
  binaries+=("$out/$name")
  live=isotone-live_${name#isotone_}
  (cd adapters/livestores && GOOS=$os GOARCH=$arch "${build[@]}" "$out/$live" ./cmd/isotone-live)
  "$dir/sbom" "$version" "$out/$live" >"$out/$live.cdx.json"
  lives+=("$out/$live")
done

# What the packages have besides the binary. The manual and the completions come from a binary for
# this machine, which is the same program.
here=$out/isotone_${version}_$(go env GOHOSTOS)_$(go env GOHOSTARCH)
if [ -x "$here" ]; then
  cp "$here" "$dir/isotone"
else
  "${build[@]}" "$dir/isotone" ./cmd/isotone
fi
mkdir -p "$dir/share/man"
"$dir/isotone" man --dir "$dir/share/man"
for shell in bash zsh fish; do
  "$dir/isotone" completion "$shell" >"$dir/share/completion.$shell"
done
"$dir/licenses" "${binaries[@]}" >"$dir/share/LICENSES.txt"
(cd adapters/livestores && "$dir/licenses" "${lives[@]}") >"$dir/share/LICENSES-live.txt"
printf '\n\nOf isotone-live:\n\n' | cat - "$dir/share/LICENSES-live.txt" >>"$dir/share/LICENSES.txt"
rm "$dir/share/LICENSES-live.txt"
cp LICENSE CHANGELOG.md "$dir/share/"
cp "$dir/share/LICENSES.txt" "$out/isotone_${version}_LICENSES.txt"
"$dir/tools" -version "$version" -revision "$REVISION" -time "$seconds" -share "$dir/share" "$out"

cd "$out"
sums=$(command -v sha256sum || echo "shasum -a 256")
$sums isotone* >SHA256SUMS
if [ -z "$key" ]; then
  echo "release: $out has no signature: set RELEASE_KEY" >&2
  exit
fi
ssh-keygen -q -Y sign -f "$key" -n isotone-release SHA256SUMS
ssh-keygen -q -Y verify -f "$signers" -I releases@isotone -n isotone-release -s SHA256SUMS.sig <SHA256SUMS ||
  { rm SHA256SUMS.sig; fail "nobody could verify the signature: $signers does not have the public key of RELEASE_KEY"; }
