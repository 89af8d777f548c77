#!/bin/sh
# Checks the models of leases and rounds and of the cluster clock: without a mistake each
# must hold in every state, with each mistake it must fail, and what is said never to happen
# must happen where REACH asks for it. Needs spin and a C compiler; takes about five minutes
# and 2 GB.
#
#   check.sh            all of the above
#   check.sh changed    the same, unless these very models were found as expected before: the search has
#                       no chance in it, so it would find the same. Their sum is in docs/evidence/model.csv
#   check.sh full       the correct models once more without the reduction (2.2 GB more)
#   check.sh interval   only the model of the cluster clock: a minute and a half
#
# CC names the C compiler, JOBS how many models are worked on at a time (2). Ends with 1
# if an expectation is not met, with 2 if a tool is missing.
set -u

here=$(cd -- "${0%/*}" 2>/dev/null && pwd) || here=$PWD
mode=${1:-}

# The ledger has a line for each state of the models and of this file that was as expected.
ledger=$here/../evidence/model.csv
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
sum=$(cd "$here" && cat check.sh lease.pml interval.pml | sha256 | cut -d' ' -f1) || exit 2
if [ "$mode" = changed ] && grep -q ",$sum\$" "$ledger"; then
	echo "checked before, all as expected: $(grep ",$sum\$" "$ledger" | cut -d, -f1) (docs/model/check.sh checks again)"
	exit 0
fi

cc=${CC:-}
for c in cc gcc clang; do
	[ -n "$cc" ] || ! command -v "$c" >/dev/null || cc=$c
done
missing=0
if ! command -v spin >/dev/null; then
	echo "check.sh: spin is missing (Debian: apt install spin; or https://spinroot.com)" >&2
	missing=2
fi
if [ -z "$cc" ] || ! command -v "$cc" >/dev/null; then
	echo "check.sh: a C compiler is missing${cc:+: $cc} (Debian: apt install gcc; or set CC)" >&2
	missing=2
fi
[ $missing = 0 ] || exit $missing

dir=$(mktemp -d) || exit 2
running='' number=0
end() {
	[ -z "$running" ] || kill $running 2>/dev/null
	wait
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM
cd "$dir" || exit 2

failed=0
row() { printf '%-30s %-10s %-26s %10s %6s %5s\n' "$@"; }

# search <name> <expected> <C options> <search options> <model options...>
search() {
	number=$((number + 1))
	mkdir "$dir/$number"
	(cd "$dir/$number" && examine "$@" >row) &
	running="$running $!"
	collect "${JOBS:-2}"
}

# collect waits until fewer models than that are worked on, and prints what was found of
# the others, in their order.
collect() {
	limit=$1
	set -- $running
	while [ $# -ge "$limit" ] && [ $# -gt 0 ]; do
		wait "$1" || failed=1
		cat "$dir/$((number - $# + 1))/row"
		shift
		running=$*
	done
}

# step runs a command that ends with this shell.
step() {
	"$@" &
	trap "kill $! 2>/dev/null; exit 143" TERM
	wait $!
}

# examine does what search is asked to, and fails unless all is as expected.
examine() {
	name=$1 expected=$2 copts=$3 popts=$4
	shift 4
	start=$(date +%s)
	# The model is preprocessed by the compiler at hand: spin itself would ask for gcc.
	if ! "$cc" -E -P -x c "$@" "$here/$model" >model.pml 2>out ||
		! spin -a model.pml >>out 2>&1 ||
		! step "$cc" -w -DSAFETY -DNOREDUCE -DMEMLIM=8000 $copts -o pan pan.c >>out 2>&1; then
		row "$name" "$expected" "does not compile" - - -
		cat out
		return 1
	fi
	step ./pan $popts >out 2>&1
	seconds=$(($(date +%s) - start))
	states=$(awk '/states, stored/ { print $1; exit }' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out | head -n 1)
	if grep -q 'assertion violated 0' out; then
		found=reached
	elif grep -q 'assertion violated' out; then
		found="violated: $(sed -n 's/.*assertion violated *\(.*\) (at depth.*/\1/p' out | head -n 1 | tr -d ' ')"
	elif ! grep -q 'errors: 0' out || grep -Eq 'not completed|too small|MEMLIM|out of memory' out; then
		found="not completed"
	else
		found=holds
	fi
	row "$name" "$expected" "$found" "${states:--}" "${depth:--}" "$seconds"
	case $found in
	"$expected"*) ;;
	*)
		echo "FAILED: $name: expected $expected, found $found"
		return 1
		;;
	esac
}

row model expected found states depth s

leases() {
	model=lease.pml
	search "correct" holds "-O1 -DBFS" ""
	search "EARLY_REQUESTS" holds "-O2 -DBFS" "" -DWORST_RATES -DEARLY_REQUESTS
	[ "${1:-}" != full ] || search "correct, not reduced" holds "-O2 -DBFS" "" -DWORST_RATES -DNO_TIDY

	for mistake in LEASE_FROM_ANSWER LEASE_WITHOUT_SLACK LEASE_IGNORES_DRIFT LEASE_CLOCK_STOPS LEASE_ON_OLD_CLOCK \
		LEASE_UNCONFIRMED LEASE_SURVIVES_TRANSFER LEASE_RETURNS_AFTER_TRANSFER VOTE_AFTER_RESTART VOTE_AFTER_TERM_CHANGE \
		LEASE_FROM_CONFIRM PROMISE_WAIVED_ON_REFUSAL JOIN_ROUND_IN_FLIGHT REUSE_ROUND_NUMBER; do
		search "$mistake" violated "-O0 -DBFS" "" -DWORST_RATES -D$mistake
	done
	# Its shortest failure is long; going deep first finds one much sooner.
	search COUNT_EARLY_GRANTS violated -O0 "-m1000" -DWORST_RATES -DCOUNT_EARLY_GRANTS

	while read -r reach what; do
		search "$what" reached "-O0 -DBFS" "" -DWORST_RATES -DREACH="$reach"
	done <<LIST
1 lease of a later leader
2 transfer succeeds
3 vote after a restart
4 answer in term 3
5 transfer overrides a promise
6 deposed leader begins a round
7 lease beside a deposed leader
8 answer without a promise
LIST
}

limits() {
	model=interval.pml
	if [ "$mode" = full ]; then
		search "limits, all rates" holds "-O1 -DBFS" ""
	fi
	search "limits" holds "-O1 -DBFS" "" -DWORST_RATES
	[ "$mode" != full ] || search "limits, not reduced" holds "-O2 -DBFS" "" -DWORST_RATES -DNO_TIDY

	for mistake in NO_WAIT WAIT_WITHOUT_RATE REELECTED_SKIPS_WAIT REPORT_OWN_ONLY REPORT_NOT_AS_LEADER REPORT_FORGETS \
		CLOCK_BEFORE_MESSAGES LIMIT_FROM_ANSWER LIMIT_UNCONFIRMED REUSE_ROUND_NUMBER TELL_UNSAID RELEASE_EARLY \
		RELEASE_AND_TELL TELL_AFTER_GIVING_UP GO_BY_OLDER_WORD; do
		search "$mistake" violated "-O0 -DBFS" "" -DWORST_RATES -D$mistake
	done

	while read -r reach what; do
		search "$what" reached "-O0 -DBFS" "" -DWORST_RATES -DREACH="$reach"
	done <<LIST
1 no wait after a release
2 the rest of a wait
3 no wait, nobody was answered
4 a leader is elected again
5 a whole wait
6 a restarted voter elects
7 limits once more after a word
8 limits beside a later leader
9 a later leader tells limits
LIST
}

[ "$mode" = interval ] || leases
limits
collect 1

if [ $failed = 0 ]; then
	echo "all as expected"
	if [ "$mode" != interval ] && ! grep -q ",$sum\$" "$ledger"; then
		echo "$(date -u +%F),$sum" >>"$ledger" && echo "noted in docs/evidence/model.csv"
	fi
else
	echo "not as expected"
fi
exit $failed
