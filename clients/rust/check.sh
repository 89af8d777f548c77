#!/usr/bin/env bash
# Checks the Rust client: format, lints, documentation, tests and, if the binary at ISOTONE has the command
# conformance, all scenarios of the kit. Needs Rust with rustfmt and clippy; cargo fetches the rest. What is built goes
# to CARGO_TARGET_DIR, by default outside the repository.
set -euo pipefail
[ -z "${ISOTONE:-}" ] || ISOTONE=$(realpath "$ISOTONE")
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-rust} CARGO_PROFILE_DEV_DEBUG=0
export RUSTDOCFLAGS="-D warnings"

step() { printf '== %s\n' "$*"; }

step "the tools"
cargo fmt --version && cargo clippy --version || { echo "install the components rustfmt and clippy of Rust" >&2; exit 1; }
step "format and lints"
cargo fmt --check
cargo clippy --quiet --locked --all-targets --all-features -- -D warnings
cargo clippy --quiet --locked -- -D warnings # without features
step "documentation"
cargo doc --quiet --locked --no-deps --all-features
step "tests"
cargo test --quiet --locked --all-features
if [ -n "${ISOTONE:-}" ] && "$ISOTONE" conformance --help >/dev/null 2>&1; then
  step "conformance"
  cargo build --quiet --locked --all-features --example conformance
  "$ISOTONE" conformance run -- "$CARGO_TARGET_DIR/debug/examples/conformance"
else
  echo "no conformance kit: set ISOTONE to a binary that has the command"
fi
