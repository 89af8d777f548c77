#!/usr/bin/env bash
# Installs the packages of a release, runs what they bring, upgrades and removes them, and starts
# the image: each in a copy of this machine that is thrown away, an overlay in a mount namespace.
# Needs Linux on amd64, root and dpkg; without rpm, systemd-analyze or mandoc their parts are skipped.
#
#	release/packages.sh NEW OLD [PART ...]
#
# PART             deb, rpm, unit or image; by default all of them
# NEW, OLD         directories with two releases, of which OLD has the lower version
# PACKAGES_DEBIAN  a Debian in a directory to install into, instead of this machine
set -euo pipefail

skip() { echo "packages: skipped: $*"; exit 0; }
fail() { echo "packages: $*" >&2; exit 1; }

[ "$(uname -sm)" = "Linux x86_64" ] || skip "the test is for Linux on amd64"
[ "$(id -u)" = 0 ] || skip "only root can install packages"
for tool in dpkg unshare curl; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
new=$(realpath "$1") old=$(realpath "$2")
# Mounts disappear with their namespace, however this ends.
if [ -z "${PACKAGES_INSIDE:-}" ]; then
  unshare --mount true 2>/dev/null || skip "mount namespaces are not permitted here"
  PACKAGES_INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi

dir=$(mktemp -d)
node="" root="" chroot=$(command -v chroot)
finish() {
  [ -z "$node" ] || kill -KILL "$node" 2>/dev/null || true
  umount -lR "$dir"/*/root "$dir"/* 2>/dev/null || true
  rm -rf --one-file-system "$dir"
}
trap finish EXIT
trap "exit 143" INT TERM HUP

# fresh makes root, a copy of the machine in which nothing runs. What is written there is in upper.
fresh() {
  local here=$dir/$1
  mkdir "$here"
  mount -t tmpfs tmpfs "$here"
  mkdir "$here/root" "$here/new" "$here/work"
  root=$here/root upper=$here/new
  mount -t overlay -o "lowerdir=${PACKAGES_DEBIAN:-/},upperdir=$upper,workdir=$here/work" overlay "$root" 2>/dev/null ||
    skip "overlays are not permitted here"
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mkdir -p "$root/tmp/packages"
  cp "$new"/*.deb "$new"/*.rpm "$old"/*.deb "$old"/*.rpm "$root/tmp/packages/"
}

inside() { chroot "$root" "$@"; }

# with_systemctl has the scripts of the packages find a systemd, which only notes what it is asked.
with_systemctl() {
  mkdir -p "$root/run/systemd/system"
  rm -f "$root/usr/bin/systemctl" # rpm looks nowhere else
  printf '#!/bin/sh\necho "$*" >>/tmp/systemctl\n' >"$root/usr/bin/systemctl"
  chmod +x "$root/usr/bin/systemctl"
}

# asked fails unless systemctl was asked exactly that since the last time.
asked() {
  local got
  got=$(tr '\n' ';' <"$root/tmp/systemctl" 2>/dev/null || true)
  rm -f "$root/tmp/systemctl"
  [ "$got" = "$1" ] || fail "systemctl was asked \"$got\", want \"$1\""
}

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

unit() { sed -n "s/^$1=//p" "$root/usr/lib/systemd/system/isotone.service"; }

# start runs the node as isotone.service says, and waits until it is ready.
start() {
  local settings file
  file=$(unit EnvironmentFile)
  mapfile -t settings < <(unit Environment; grep -v '^#' "$root${file#-}" | grep .)
  # shellcheck disable=SC2046
  launch "$(unit User):$(unit Group)" "${settings[@]}" -- $(unit ExecStart)
}

# launch USER:GROUP VARIABLE=VALUE ... -- COMMAND ... runs a node in root in the background.
launch() {
  local user=$1 variables=()
  shift
  while [ "$1" != -- ]; do
    variables+=("$1")
    shift
  done
  shift
  env -i "${variables[@]}" "$chroot" --userspec="$user" "$root" "$@" >"$dir/log" 2>&1 &
  node=$!
  local end=$((SECONDS + 90))
  while [ "$SECONDS" -lt "$end" ]; do
    if env -i HTTP_PORT="$port" "$chroot" "$root" /usr/bin/isotone ready >"$dir/ready" 2>&1; then
      return
    fi
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
  done
  cat "$dir/log" >&2
  fail "the node is not ready: $(cat "$dir/ready")"
}

stop() {
  local status=0
  kill -TERM "$node"
  wait "$node" || status=$?
  node=
  [ "$status" = 0 ] || { cat "$dir/log" >&2; fail "the node ended with status $status"; }
}

last=
# further takes a timestamp, which must be above the last one.
further() {
  local hex
  hex=$(curl -fsS --max-time 10 "127.0.0.1:$port/timestamp?format=json" | sed -n 's/.*"hex":"\([0-9a-f]\{32\}\)".*/\1/p')
  [ -n "$hex" ] || fail "no timestamp $1"
  [[ $hex > $last ]] || fail "the timestamp $hex $1 is not above $last"
  last=$hex
}

# settings writes what an operator would.
settings() {
  port=$(free_port)
  printf '%s\n' "HTTP_HOST=127.0.0.1" "HTTP_PORT=$port" "RAFT_ADDR=127.0.0.1:$(free_port)" THRIFT_PORT=0 >>"$root/etc/isotone/isotone.env"
}

# owned fails unless a path in root has that owner, group and mode.
owned() {
  local got
  got=$(inside stat -c '%U:%G %a' "$1")
  [ "$got" = "$2" ] || fail "$1 is $got, want $2"
}

# left fails unless what the package has left of itself is its data, and the files given.
left() {
  local got want=$1
  got=$(cd "$upper" && find . ! -type d ! -type c -path '*isotone*' ! -path './tmp/*' ! -path './var/lib/dpkg/*' ! -path './var/lib/isotone/*' | sort | tr '\n' ' ')
  [ "${got% }" = "$want" ] || fail "removal has left $got, want only the data and \"$want\""
  [ -s "$root/var/lib/isotone/isotone.db" ] || fail "the data is gone"
}

installed() {
  owned /usr/bin/isotone "root:root 755"
  owned /usr/bin/isotone-live "root:root 755"
  inside /usr/bin/isotone-live --help >/dev/null
  owned /var/lib/isotone "isotone:isotone 750"
  owned /etc/isotone/isotone.env "root:isotone 640"
  [ -z "$(ls -A "$root/var/lib/isotone")" ] || fail "the package has begun a cluster"
  zcat "$root/usr/share/man/man1/isotone-serve.1.gz" | grep -q '^\.TH ISOTONE'
  bash -n "$root/usr/share/bash-completion/completions/isotone"
}

is_version() {
  inside /usr/bin/isotone version | grep -q "^isotone $1 " || fail "isotone version is not $1"
}

version_of() {
  local file
  file=$(cd "$1" && ls isotone_*_linux_amd64.deb)
  file=${file#isotone_}
  echo "${file%_linux_amd64.deb}"
}

# says_next COMMAND fails unless the installation has ended with how to start a node.
says_next() {
  grep -q "Next:" "$dir/out" && grep -qF -- "$1" "$dir/out" || { cat "$dir/out" >&2; fail "the installation does not say \"$1\""; }
}

# cycle INSTALL UPGRADE REMOVE has a node live through an upgrade and a removal.
cycle() {
  with_systemctl
  "$1"
  says_next "systemctl enable --now isotone"
  asked "daemon-reload;try-restart isotone.service;" # which does nothing for one that does not run
  is_version "$(version_of "$old")"
  installed
  settings
  if (start) >"$dir/first" 2>&1; then
    fail "a node without data has formed a cluster"
  fi
  grep -q "REQUIRE_DATA is set" "$dir/first" || { cat "$dir/first" >&2; fail "the first start failed for another reason"; }
  inside /usr/bin/isotone init --data-dir /var/lib/isotone >/dev/null # as root, as docs/release.md says
  start
  further "before the upgrade"
  "$2"
  ! grep -q "Next:" "$dir/out" || fail "an upgrade says what to do after an installation"
  asked "daemon-reload;try-restart isotone.service;"
  further "of the process that runs, after the upgrade of its files"
  stop
  is_version "$(version_of "$new")"
  grep -q "^HTTP_PORT=$port" "$root/etc/isotone/isotone.env" || fail "the upgrade has changed the settings"
  start
  further "after the upgrade"
  stop
  rm -rf "$root/run/systemd" # from here on without systemd
  "$3"
  [ ! -e "$root/usr/bin/isotone" ] && [ ! -e "$root/usr/bin/isotone-live" ] || fail "a binary is left"
  [ ! -e "$root/tmp/systemctl" ] || fail "systemctl was asked where there is no systemd"
}

deb_old() { inside dpkg --no-triggers -i "/tmp/packages/$(basename "$old"/*.deb)" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }
deb_new() { inside dpkg --no-triggers -i "/tmp/packages/$(basename "$new"/*.deb)" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }
deb_remove() { inside dpkg --no-triggers -r isotone >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }

check_deb() {
  fresh deb
  [ ! -e "$root/usr/bin/isotone" ] || skip "isotone is installed here"
  cycle deb_old deb_new deb_remove
  left "./etc/isotone/isotone.env"
  cp "$root/etc/isotone/isotone.env" "$dir/kept.env"
  inside dpkg -P isotone >"$dir/out" 2>&1
  left ""
  [ ! -e "$root/etc/isotone" ] || fail "/etc/isotone is left"
  deb_new
  says_next "exec isotone serve"
  cp "$dir/kept.env" "$root/etc/isotone/isotone.env"
  start
  further "after a purge and another installation, on the same data"
  stop
  with_systemctl
  deb_remove
  asked "disable --now isotone.service;daemon-reload;"
  echo "deb: installed, upgraded under a node, removed, purged, installed again; timestamps went on above"
}

# What rpm needs of the machine is with dpkg here.
rpm_old() { inside rpm --nodeps -i "/tmp/packages/$(basename "$old"/*.rpm)" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }
rpm_new() { inside rpm --nodeps -U "/tmp/packages/$(basename "$new"/*.rpm)" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }
rpm_remove() { inside rpm --nodeps -e isotone >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }; }

check_rpm() {
  local file=$new/isotone_$(version_of "$new")_linux_amd64.rpm facts
  command -v rpm >/dev/null || { echo "rpm is not installed: its package is not tested"; return; }
  rpm -K --nosignature "$file" | grep -q 'digests OK' || fail "rpm finds $file damaged"
  facts=$(rpm -qp --nosignature --qf '%{NAME} %{VERSION} %{ARCH} %{LICENSE} %{BUILDHOST} %{BUILDTIME}\n' "$file")
  [[ $facts == "isotone $(version_of "$new" | sed 's/^v//; s/-/~/') x86_64 Apache-2.0 localhost "[0-9]* ]] || fail "rpm says: $facts"
  [ "$(rpm -qp --nosignature --configfiles "$file")" = /etc/isotone/isotone.env ] || fail "the settings are no configuration file"
  [ "$(rpm -qp --nosignature --scripts "$file" | grep -c '^#!/bin/sh')" = 4 ] || fail "the package has not four scripts"
  fresh rpm
  [ -x "$root/usr/bin/rpm" ] || { echo "rpm: the metadata is right; there is no rpm in the other root to install with"; return; }
  cycle rpm_old rpm_new rpm_remove
  left "./etc/isotone/isotone.env.rpmsave"
  echo "rpm: metadata, installed, upgraded under a node, removed; timestamps went on above"
}

check_unit() {
  command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed: the unit is not tested"; return; }
  fresh unit
  [ -x "$root/usr/bin/systemd-analyze" ] || { echo "there is no systemd in the other root: the unit is not tested"; return; }
  deb_new
  local faults
  # Units of this machine that it comes after may have faults of their own.
  faults=$(inside systemd-analyze verify --man=no isotone.service 2>&1 | grep isotone || true)
  [ -z "$faults" ] || fail "$faults"
  # 0 is the best of 10; a unit without any hardening has 9.6.
  SYSTEMD_COLORS=0 inside systemd-analyze security --offline=true --no-pager --threshold=25 isotone.service >"$dir/security" 2>&1 ||
    { cat "$dir/security"; fail "the unit is not hardened as it was"; }
  echo "unit: valid; $(grep -o 'Overall exposure level.*[0-9.]* [A-Z]*' "$dir/security")"
}

# check_image unpacks the image for amd64 and starts it with what its configuration says.
check_image() {
  local archive layer config
  archive=$(echo "$new"/isotone_*_oci.tar)
  mkdir "$dir/image" "$dir/layout"
  tar xf "$archive" -C "$dir/layout"
  for layer in "$dir"/layout/blobs/sha256/*; do
    [ "$(sha256sum <"$layer" | cut -d' ' -f1)" = "${layer##*/}" ] || fail "the digest of $layer is wrong"
  done
  # The first image in it is that for amd64.
  layer=$(sed -n 's/^\[{"Config":"[^"]*","RepoTags":\["[^"]*-amd64"\],"Layers":\["\([^"]*\)"\].*/\1/p' "$dir/layout/manifest.json")
  config=$(sed -n 's/^\[{"Config":"\([^"]*\)".*/\1/p' "$dir/layout/manifest.json")
  for want in '"User":"65532:65532"' '"Entrypoint":\["/usr/bin/isotone"\],"Cmd":\["serve"\]' '"StopSignal":"SIGTERM"' '"DATA_DIR=/var/lib/isotone"' \
    '"Test":\["CMD","/usr/bin/isotone","ready"\]' '"org.opencontainers.image.version":"'"$(version_of "$new")"'"'; do
    grep -q "$want" "$dir/layout/$config" || fail "the configuration of the image does not have $want"
  done
  root=$dir/image
  tar xzf "$dir/layout/$layer" -C "$root"
  grep -q 'BEGIN CERTIFICATE' "$root/etc/ssl/certs/ca-certificates.crt" || fail "the image has no authorities"
  port=$(free_port) last=
  launch 65532:65532 DATA_DIR=/var/lib/isotone PATH=/usr/bin HTTP_PORT="$port" RAFT_ADDR=127.0.0.1:0 THRIFT_PORT=0 -- /usr/bin/isotone serve
  further "of the image"
  stop
  ! env -i HTTP_PORT="$port" "$chroot" "$root" /usr/bin/isotone ready >/dev/null 2>&1 || fail "the health check succeeds without a node"
  echo "image: its root serves as user 65532"
}

shift 2
[ $# -gt 0 ] || set -- deb rpm unit image
for part; do
  "check_$part"
done
