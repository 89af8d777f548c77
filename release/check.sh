#!/usr/bin/env bash
# Checks that a release is reproducible, can be verified and can be installed: builds one platform
# twice, in two directories and with two build caches, compares the bytes, runs the commands of
# docs/release.md on the result, with a key that is thrown away, and then release/packages.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export PLATFORMS=linux/amd64 REVISION=0123456789abcdef0123456789abcdef01234567 SOURCE_DATE_EPOCH=1764000000

mkdir "$dir/a directory"
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar x -C "$dir/a directory"

ssh-keygen -q -t ed25519 -N '' -C 'thrown away' -f "$dir/key"
printf 'releases@isotone namespaces="isotone-release" %s\n' "$(cat "$dir/key.pub")" >"$dir/signers"
RELEASE_KEY=$dir/key ALLOWED_SIGNERS=$dir/signers release/build.sh v0.0.0-check "$dir/one"

if RELEASE_KEY=$dir/missing/key release/build.sh v0.0.0-check "$dir/unsigned" 2>/dev/null; then
  echo "a release without a signature although RELEASE_KEY is set" >&2
  exit 1
fi

# Another directory, without the repository, another time zone and another cache: what Go has
# compiled for the first build must not be taken for the second.
TZ=Asia/Tokyo GOCACHE=$dir/cache "$dir/a directory/release/build.sh" v0.0.0-check "$dir/two"
for file in "$dir"/two/*; do
  cmp "$file" "$dir/one/${file##*/}"
done
echo "the same bytes, built twice: $(cd "$dir/one" && ls | tr '\n' ' ')"

# The commands that the document tells users to run, for this version and this key.
cd "$dir/one"
cp "$dir/signers" allowed_signers
verify=$(sed -n '/<!-- verify -->/,/^```$/p' "$OLDPWD/docs/release.md" | sed '/^<!--/d; /^```/d; s/v1\.2\.3/v0.0.0-check/g')
[ -n "$verify" ] || { echo "docs/release.md has no commands to verify with" >&2; exit 1; }
bash -euc "$verify"
case $(uname -sm) in "Linux x86_64")
  chmod +x isotone_v0.0.0-check_linux_amd64
  ./isotone_v0.0.0-check_linux_amd64 version | grep -q "^isotone v0.0.0-check $REVISION " ;;
esac

refused() {
  if bash -euc "$verify" >/dev/null 2>&1; then
    echo "$1 is not noticed" >&2
    exit 1
  fi
}
cp isotone_v0.0.0-check_linux_amd64 "$dir/kept"
printf x >>isotone_v0.0.0-check_linux_amd64
refused "a changed binary"
sha256sum isotone* >SHA256SUMS
refused "a changed binary with its checksum"
cp "$dir/kept" isotone_v0.0.0-check_linux_amd64
ssh-keygen -q -t ed25519 -N '' -f "$dir/other"
sha256sum isotone* >SHA256SUMS
rm SHA256SUMS.sig
ssh-keygen -q -Y sign -f "$dir/other" -n isotone-release SHA256SUMS
refused "the signature of a stranger"
echo "verified, and three forgeries refused"

cd "$OLDPWD"
release/build.sh v0.0.0-before "$dir/before" 2>/dev/null
release/packages.sh "$dir/one" "$dir/before"
