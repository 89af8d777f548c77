package search

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	twice = "a timestamp is issued twice"
	below = "a timestamp is not above one that was answered before the request came"
	two   = "two nodes lead in a term"
)

// complete are the sizes that are searched with all rules in force, the first of them always.
var complete = []Size{
	{Terms: 2, Rounds: 1, Requests: 2},
	{Terms: 2, Rounds: 1, Requests: 2, Hasty: true, Forged: true},
	{Terms: 2, Rounds: 1, Requests: 2, Restarts: 1, Hasty: true},
	{Terms: 2, Rounds: 1, Requests: 2, Lease: true, Time: 1, Fast: [nodes]bool{false, true, true}},
}

// needs says what is broken without a rule. The quick ones are looked at always.
type needs struct {
	rule   string
	size   Size
	broken string
	quick  bool
}

var needed = []needs{
	{"round", Size{Terms: 2, Rounds: 1, Requests: 2}, below, true},
	{"once", Size{Terms: 1, Rounds: 1, Requests: 2}, twice, true},
	{"arrival", Size{Terms: 1, Rounds: 2, Requests: 2}, below, true},
	{"opening", Size{Terms: 2, Rounds: 1, Requests: 2}, twice, false},
	{"vote", Size{Terms: 2, Rounds: 1, Requests: 2}, two, true},
	{"disk", Size{Terms: 1, Rounds: 1, Requests: 1, Hasty: true, Restarts: 1}, two, true},
	{"ceiling", Size{Terms: 2, Rounds: 1, Requests: 2}, twice, false},
	{"confirmation", Size{Terms: 2, Rounds: 1, Requests: 2, Forged: true}, below, false},
	{"lease", Size{Terms: 2, Rounds: 1, Requests: 2, Lease: true}, below, false},
	{"promise", Size{Terms: 2, Rounds: 1, Requests: 2, Lease: true}, below, false},
	{"start", Size{Terms: 2, Rounds: 1, Requests: 2, Lease: true, Restarts: 1}, below, false},
}

// ruleOf has the rule that refuses what each deliberate mistake of docs/model/lease.pml permits.
var ruleOf = map[string]string{
	"LEASE_FROM_ANSWER": "lease", "LEASE_WITHOUT_SLACK": "lease", "LEASE_IGNORES_DRIFT": "lease", "LEASE_CLOCK_STOPS": "lease", "LEASE_ON_OLD_CLOCK": "lease",
	"LEASE_UNCONFIRMED": "lease", "LEASE_SURVIVES_TRANSFER": "lease", "LEASE_RETURNS_AFTER_TRANSFER": "lease", "VOTE_AFTER_RESTART": "start", "VOTE_AFTER_TERM_CHANGE": "promise",
	"LEASE_FROM_CONFIRM": "lease", "PROMISE_WAIVED_ON_REFUSAL": "promise", "JOIN_ROUND_IN_FLIGHT": "round", "REUSE_ROUND_NUMBER": "confirmation", "COUNT_EARLY_GRANTS": "disk",
}

// TestSearch_HasARuleForEachMistakeOfTheModel, without which a promise breaks here.
func TestSearch_HasARuleForEachMistakeOfTheModel(t *testing.T) {
	script, err := os.ReadFile("../../docs/model/check.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, leases, _ := strings.Cut(string(script), "\nleases() {")
	leases, _, _ = strings.Cut(leases, "\n}")
	mistakes := regexp.MustCompile(`\b[A-Z]+(_[A-Z]+)+\b`).FindAllString(leases, -1)
	seen := map[string]bool{}
	for _, m := range mistakes {
		m = strings.TrimPrefix(m, "D") // of an option of the compiler
		switch rule := ruleOf[m]; {
		case m == "WORST_RATES" || m == "EARLY_REQUESTS" || m == "NO_TIDY": // no mistakes
		case !slices.ContainsFunc(needed, func(n needs) bool { return n.rule == rule }):
			t.Errorf("no rule that is needed refuses the mistake %s of the model", m)
		default:
			seen[m] = true
		}
	}
	if len(seen) != len(ruleOf) {
		t.Errorf("the model has the mistakes %v, want all of %v", seen, ruleOf)
	}
}

// limit is how many states are looked at.
const limit = 5e6

// TestSearch_TheRulesKeepThePromises in every state of a size. With SEARCH=full it takes minutes, and prints the table of README.md.
func TestSearch_TheRulesKeepThePromises(t *testing.T) {
	sizes := complete
	if os.Getenv("SEARCH") != "full" {
		sizes = sizes[:1]
	}
	for _, size := range sizes {
		r := search(t, "all", size)
		if r.Broken != "" || !r.Complete {
			t.Errorf("%+v: %d states: %q after %q", size, r.States, r.Broken, r.Way)
		}
		actions := []string{"elect", "append", "request", "ask", "confirm", "count", "answer"}
		if size.Restarts > 0 {
			actions = append(actions, "restart")
		}
		if size.Time > 0 {
			actions = append(actions, "time")
		}
		for _, action := range actions {
			if r.Reached[action] < 500 {
				t.Errorf("%+v: %d states after %q", size, r.Reached[action], action)
			}
		}
		for action := range r.Reached {
			if strings.HasPrefix(action, "elect before") || strings.HasPrefix(action, "count what ") {
				t.Errorf("%+v: %q is permitted", size, action)
			}
		}
	}
}

// TestSearch_EachRuleIsNeeded: without it, a promise is broken.
func TestSearch_EachRuleIsNeeded(t *testing.T) {
	for _, tt := range needed {
		if !tt.quick && os.Getenv("SEARCH") != "full" {
			continue
		}
		if r := search(t, "without "+tt.rule, tt.size, tt.rule); r.Broken != tt.broken {
			t.Errorf("without %s: %d states: %q after %q, want %q", tt.rule, r.States, r.Broken, r.Way, tt.broken)
		}
	}
}

// search prints a line of a table.
func search(t *testing.T, rules string, size Size, without ...string) Result {
	began := time.Now()
	r := Search(size, limit, without...)
	what := r.Broken
	if r.Complete {
		what = "holds, search complete"
	}
	t.Logf("| %s | %s | %s | %d | %d | (%v) %s", rules, describe(size), what, r.States, r.Depth, time.Since(began).Round(time.Second), strings.Join(r.Way, ", "))
	return r
}

func describe(s Size) string {
	text := fmt.Sprintf("%d terms, %d rounds, %d requests", s.Terms, s.Rounds, s.Requests)
	if s.Restarts > 0 {
		text += fmt.Sprintf(", %d restart", s.Restarts)
	}
	if s.Hasty {
		text += ", votes that are not on disk"
	}
	if s.Forged {
		text += ", confirmations that nobody has sent"
	}
	if s.Lease {
		text += fmt.Sprintf(", leases, time passes %d times", s.Time)
	}
	if s.Time > 0 {
		text += fmt.Sprintf(", fast clocks %v", s.Fast)
	}
	return text
}
