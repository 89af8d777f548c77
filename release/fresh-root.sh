#!/usr/bin/env bash
# Runs the first two commands of README.md on the machine of a newcomer: a minimal Debian in a directory,
# with Go, certificates and a clone of the last commit, and nothing else. Needs root and
# debootstrap (Debian: apt-get install debootstrap).
#
#	release/fresh-root.sh [--short] [--skip-tests] [PACKAGE ...]
#
# --short          go test -short; without it the tests take as long as anywhere else
# --skip-tests     only go run ./cmd/isotone dev
# PACKAGE          what to test, by default ./...
#
# FRESH_ROOT       keeps the Debian there, for the next time; by default it is made anew
# FRESH_CACHE      keeps what Go has downloaded and compiled there, which no newcomer has
# FRESH_SUITE, FRESH_MIRROR  which Debian (bookworm), and from where (http://deb.debian.org/debian)
# GOPROXY, GOSUMDB, https_proxy and the like, and GOMAXPROCS are passed on.
set -euo pipefail
cd "$(dirname "$0")/.."

short="" skip=""
while [ $# -gt 0 ]; do
  case $1 in
    --short) short=-short ;;
    --skip-tests) skip=yes ;;
    -*) echo "fresh-root: unknown option $1" >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
[ $# -gt 0 ] || set -- ./...

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "fresh-root: skipped: it needs root and debootstrap" >&2
  exit
fi
# Mounts disappear with their namespace, however this ends.
if [ -z "${FRESH_ROOT_INSIDE:-}" ]; then
  export FRESH_ROOT_INSIDE=yes
  args=(${short:+--short} ${skip:+--skip-tests})
  exec unshare --mount --propagation private release/fresh-root.sh "${args[@]}" "$@"
fi
if (exec 3<>/dev/tcp/127.0.0.1/8081) 2>/dev/null; then
  echo "fresh-root: something listens on port 8081, which isotone dev takes: end it first" >&2
  exit 1
fi

dir=$(mktemp -d)
started=
cleanup() {
  [ -z "$started" ] || kill -- "-$started" 2>/dev/null || true
  umount -lR "$dir/root" "$dir/over" 2>/dev/null || true
  rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap "exit 143" INT TERM HUP

debian=${FRESH_ROOT:-$dir/debian}
if [ ! -e "$debian" ]; then # what has this name is complete
  rm -rf --one-file-system "$debian.part"
  debootstrap --variant=minbase --include=ca-certificates "${FRESH_SUITE:-bookworm}" "$debian.part" \
    "${FRESH_MIRROR:-http://deb.debian.org/debian}" >"$dir/debootstrap.log" 2>&1 || { tail -5 "$dir/debootstrap.log"; exit 1; }
  mv "$debian.part" "$debian"
fi
# What this run writes stays out of a Debian that is kept.
mkdir "$dir/over" "$dir/root"
mount -t tmpfs -o size=75% tmpfs "$dir/over"
mkdir "$dir/over/new" "$dir/over/work"
mount -t overlay -o "lowerdir=$debian,upperdir=$dir/over/new,workdir=$dir/over/work" overlay "$dir/root"
root=$dir/root
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mkdir -p "$root/usr/local/go"
mount --bind "$(go env GOROOT)" "$root/usr/local/go"
mount -o remount,bind,ro "$root/usr/local/go"

chroot "$root" useradd --create-home --shell /bin/bash newcomer
cp /etc/resolv.conf "$root/etc/resolv.conf"
# The installer of Debian and every container engine write this file; debootstrap does not.
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
# Networks whose proxies have certificates of their own.
if [ -r "${SSL_CERT_FILE:-}" ]; then
  cp "$SSL_CERT_FILE" "$root/etc/ssl/certs/ca-certificates.crt"
fi
git clone -q --no-hardlinks . "$root/home/newcomer/isotone"
for kept in ${FRESH_CACHE:+.cache go}; do
  mkdir -p "$FRESH_CACHE/$kept" "$root/home/newcomer/$kept"
  mount --bind "$FRESH_CACHE/$kept" "$root/home/newcomer/$kept"
done
chroot "$root" chown -R newcomer:newcomer /home/newcomer

pass=()
for name in GOPROXY GOSUMDB GONOSUMDB GONOSUMCHECK GOMAXPROCS http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || pass+=("$name=${!name}")
done
newcomer=(env -i HOME=/home/newcomer USER=newcomer LANG=C.UTF-8 PATH=/usr/local/go/bin:/usr/bin:/bin "${pass[@]}"
  "$(command -v chroot)" --userspec=newcomer:newcomer "$root" /bin/sh -c 'cd ~/isotone && exec "$@"' sh)

echo "== go run ./cmd/isotone dev"
set -m
"${newcomer[@]}" go run ./cmd/isotone dev >"$dir/dev.log" 2>&1 &
started=$!
set +m
for ((i = 0; ; i++)); do
  if answer=$(curl -fsS --max-time 2 '127.0.0.1:8081/timestamp?format=json' 2>/dev/null); then
    break
  fi
  if ! kill -0 "$started" 2>/dev/null || [ "$i" -gt "${FRESH_WAIT:-900}" ]; then
    cat "$dir/dev.log"
    echo "fresh-root: isotone dev does not answer" >&2
    exit 1
  fi
  sleep 1
done
head -8 "$dir/dev.log"
echo "$answer"
curl -fsS --max-time 2 127.0.0.1:8082/api/snowflake
echo
kill -INT -- "-$started"
wait "$started" 2>/dev/null || true
started=
[ -z "$(git -C "$root/home/newcomer/isotone" -c safe.directory='*' status --porcelain)" ] || { echo "fresh-root: the commands changed files of the clone" >&2; exit 1; }

if [ -n "$skip" ]; then
  echo "go test was not run"
  exit
fi
echo "== go test $short $*"
"${newcomer[@]}" go test $short "$@"
