// Package proof_test shows that the proof in this folder depends on what it says: with a mistake in a step or in a premise, a lemma
// fails. Without a mistake, check.sh verifies all of it.
package proof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quick is how many mistakes are tried unless PROOF is all, as each takes some seconds of a processor.
const quick = 5

// mistakes are changes of one line each, of a step or a premise, and the lemma that does not hold any more.
var mistakes = []struct {
	name, file, right, wrong, lemma string
}{
	{"a request is answered before a round", "steps.dfy", "q in s.cleared\n", "q in s.requests\n", "AnswersKept"},
	{"a request joins a round that began before it arrived", "steps.dfy", "&& q.arrived < s.rounds[r])", ")", "ClearedKept"},
	{"a reservation counts before it is applied", "steps.dfy", "Ceiling(s.base, t.log[..t.applied+1])", "Ceiling(s.base, t.log)", "AppliedTenureIsOk"},
	{"half of the voters make a quorum", "types.dfy", "2 * |q * of| > |of|", "2 * |q * of| >= |of|", "MajoritiesMeet"},
	{"a leader starts below the ceiling that it finds", "steps.dfy", "Max(Ceiling(base, t.log[..t.opening-1]), 1)", "1", "TermsDoNotOverlap"},
	{"a voter answers although it has voted in a later term", "steps.dfy",
		"v.voter == a.voter ==> v.term <= a.round.term", "v.voter == a.voter ==> true", "AcksKept"},
	{"a leader goes on after it has voted for another", "steps.dfy", "s.tenures[t].active ==> s.tenures[t].node != v.voter", "true", "ElectionsKept"},
	{"an older term's reservation opens the allocator", "steps.dfy", "e.Reserve? && e.term == term then", "e.Reserve? then", "AppliedTenureIsOk"},
	{"timestamps are issued up to the ceiling itself", "steps.dfy", "last.time < t.alloc.ceiling", "last.time <= t.alloc.ceiling", "TenuresKept"},
	{"the next timestamp is the last one again", "steps.dfy", "Timestamp(last.time, last.index + 1)", "last", "AnswersKept"},
	{"of a joint configuration, only the new voters count", "types.dfy", "(c.outgoing != {} ==> IsMajority(q, c.outgoing))", "true", "QuorumsMeet"},
	{"a change is proposed before the one before it is applied", "steps.dfy", "Changes(t.log) == Changes(t.log[..t.applied]) && ", "", "AppendedTenureIsOk"},
	{"a candidate has two changes that it has not applied", "axioms.dfy", "+ 1\n", "+ 2\n", "SomeVoterDidBoth"},
	{"a later leader lacks what was committed", "axioms.dfy", "&& LeaderCompleteness(s) &&", "&&", "NoLaterLeader"},
	{"a promise does not keep a voter from voting", "steps.dfy", "p.voter == v.voter ==> p in s.kept)", "p.voter == v.voter ==> true)", "PromisesKept"},
	{"a promise ends before the lease", "axioms.dfy", "{ promise.round in s.ended }", "{ true }", "PromisesKept"},
	{"a leader keeps its lease during a transfer", "steps.dfy", "  && term !in s.forgone\n", "", "ClearedKept"},
}

// holders are the files with the lemmas.
var holders = map[string]string{
	"AnswersKept": "kept.dfy", "ClearedKept": "kept.dfy", "AcksKept": "kept.dfy", "ElectionsKept": "kept.dfy", "PromisesKept": "kept.dfy",
	"AppliedTenureIsOk": "tenures.dfy", "AppendedTenureIsOk": "tenures.dfy", "TenuresKept": "tenures.dfy",
	"TermsDoNotOverlap": "theorems.dfy", "QuorumsMeet": "quorums.dfy", "MajoritiesMeet": "quorums.dfy", "SomeVoterDidBoth": "later.dfy", "NoLaterLeader": "later.dfy",
}

var refuted = regexp.MustCompile(`verifier finished with [0-9]+ verified, [1-9][0-9]* error`)

func TestProof_FailsWithAMistake(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each mistake takes seconds")
	}
	for _, tool := range []string{"dafny", "z3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing (Debian: apt install dafny z3)", tool)
		}
	}
	files, err := filepath.Glob("*.dfy")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of the proof: %v", err)
	}
	tried := mistakes[:quick]
	if os.Getenv("PROOF") == "all" {
		tried = mistakes
	}
	for _, m := range tried {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir, made := t.TempDir(), false
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				changed := string(text)
				if name == m.file {
					changed = strings.Replace(changed, m.right, m.wrong, 1)
					made = changed != string(text)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(changed), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if !made {
				t.Fatalf("%s does not have %q", m.file, m.right)
			}
			// Only that lemma is verified, up to its first error. One for which z3 needs too much is not counted as an error.
			cmd := exec.Command("dafny", "/compile:0", "/rlimit:400000000", "/errorLimit:1", "/proc:*"+m.lemma, holders[m.lemma])
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // it fails, as it should
			if !refuted.Match(out) {
				t.Errorf("%s holds in spite of it:\n%s", m.lemma, out)
			}
		})
	}
}
