#!/usr/bin/env bash
# Compares the working tree with an earlier revision: runs bench/loop.sh on each alternately
# (A B A B …) and prints, for each row, the median rates of both, the median ratios to the
# reference of the same run, and by what factor that ratio has changed. It compares ratios
# because rates vary from run to run on a shared machine. A single row differs by up to a fifth between two runs
# all the same, in both directions: look at the geometric mean over all rows.
#
#   bench/compare.sh REVISION [CASE...]      cases as in bench/loop.sh
#
# PAIRS (4) is the number of runs of each revision; ROUNDS (1) and SECONDS_EACH (3) apply to
# each run. Needs git, and what bench/loop.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2; }
revision=$(git rev-parse --verify "$1^{commit}"); shift
pairs=${PAIRS:-4}
export ROUNDS=${ROUNDS:-1} SECONDS_EACH=${SECONDS_EACH:-3}
out=$(mktemp -d)
trap 'git worktree remove --force "$out/before" 2>/dev/null || true; rm -rf "$out"' EXIT
git worktree add --quiet --detach "$out/before" "$revision"
for i in $(seq "$pairs"); do
  printf 'pair %d of %d\n' "$i" "$pairs" >&2
  (cd "$out/before" && bench/loop.sh "$@") >"$out/A$i" 2>"$out/A$i.err" || { cat "$out/A$i.err" >&2; exit 1; }
  bench/loop.sh "$@" >"$out/B$i" 2>"$out/B$i.err" || { cat "$out/B$i.err" >&2; exit 1; }
done
printf '%-40s %-14s %8s %12s %12s %8s %8s %8s\n' case server c "before/s" "after/s" before after change
awk '
  function median(list, n, k, i, v) { n = split(list, v, " "); for (i = 2; i <= n; i++) for (k = i; k > 1 && v[k-1] + 0 > v[k] + 0; k--) { t = v[k]; v[k] = v[k-1]; v[k-1] = t }
    return n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2 }
  FNR == 1 { side = FILENAME; sub(/.*\//, "", side); side = substr(side, 1, 1); section = "" }
  /^[A-Z].*,/ { section = substr($0, 1, 40) }
  NF == 7 && $3 ~ /^[0-9]+$/ && $7 ~ /^[0-9.]+$/ {
    key = section SUBSEP $1 SUBSEP $2
    if (!(key in seen)) { seen[key] = 1; order[++rows] = key }
    rate[side, key] = rate[side, key] " " $3; ratio[side, key] = ratio[side, key] " " $7
  }
  END {
    for (r = 1; r <= rows; r++) {
      key = order[r]; split(key, k, SUBSEP)
      a = median(ratio["A", key]); b = median(ratio["B", key])
      if (a == 0 || b == 0) continue
      printf "%-40s %-14s %8s %12.0f %12.0f %8.2f %8.2f %8.3f\n", k[1], k[2], k[3], median(rate["A", key]), median(rate["B", key]), a, b, b / a
      if (a != 1 || b != 1) { sum += log(b / a); n++ }
    }
    if (n) printf "\nthe ratios have changed by %.1f %% (geometric mean of %d)\n", 100 * (exp(sum / n) - 1), n
  }' "$out"/A[0-9] "$out"/B[0-9]
