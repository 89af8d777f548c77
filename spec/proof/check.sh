#!/bin/sh
# Verifies every file of the proof, one after the other, and prints how long each took: about two minutes. Fails if a
# file has an error, or assumes anything outside of axioms.dfy.
#
#   check.sh                    all files of this folder
#   check.sh DIRECTORY [FILE…]  those of another one, or only some of them (proof_test.go)
#
# Ends with 1 if the proof does not hold, with 2 if Dafny is missing.
set -u

dir=${1:-$(dirname -- "$0")}
cd -- "$dir" || exit 2
[ $# -gt 0 ] && shift

for tool in dafny z3; do
	if ! command -v $tool >/dev/null; then
		echo "check.sh: $tool is missing (Debian: apt install dafny z3)" >&2
		exit 2
	fi
done

# An assume statement or an attribute could claim anything.
assumed=$(grep -nE '\bassume\b|\{:(axiom|verify|extern|imported)|:[|] *assume' ./*.dfy | grep -vE '^[^:]*:[0-9]*:[[:space:]]*//' | grep -v '^\./axioms\.dfy:')
# So does a lemma, predicate or function without a body, which begins on a line of its own or beside the name.
bodiless=$(awk '
	function report() { if (open) print open; open = "" }
	FNR == 1 || /^$/ { report() }
	/^(lemma|predicate|function|method)/ { report(); open = FILENAME ": " $0 }
	/^\{/ || /^(predicate|function).*\{.*\}$/ { open = "" }
	END { report() }' ./*.dfy)
if [ -n "$assumed$bodiless" ]; then
	printf 'check.sh: assumed outside of axioms.dfy, or without a proof:\n%s\n' "$assumed$bodiless"
	exit 1
fi

# Dafny 2.3 sets an option that z3 4.8 no longer has. It says so for every lemma, and lists all others.
noise='^Prover error: .*model_compress|^Legal parameters are:|^  [a-z_0-9]+ \([a-z ]+\)( \(default: .*\))?$'

# A lemma may cost so much of z3's own unit, which is the same on a busy machine. The dearest takes half of it at most.
limit=/rlimit:400000000

failed=0
[ $# -gt 0 ] || set -- *.dfy
for file; do
	start=$(date +%s)
	out=$(dafny /compile:0 $limit "$file" 2>&1 | grep -vE "$noise")
	result=$(printf '%s\n' "$out" | grep '^Dafny program verifier finished' | sed 's/.*with //')
	printf '%-16s %4d s  %s\n' "$file" $(($(date +%s) - start)) "${result:-not verified}"
	case $result in
	*' verified, 0 errors') ;;
	*)
		printf '%s\n' "$out"
		failed=1
		;;
	esac
done
exit $failed
