package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/check/conformance"
)

// unchecked are the rules without a scenario, as conformance/README.md says.
var unchecked = []string{"C5", "C61", "C62"}

// TestScenarios_CheckEveryRule of docs/client-protocol.md, and no other.
func TestScenarios_CheckEveryRule(t *testing.T) {
	text, err := os.ReadFile("../../../docs/client-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	known, checked, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (C[0-9]+) \|`).FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = true
	}
	for _, sc := range conformance.Scenarios() {
		if names[sc.Name] || !regexp.MustCompile(`^[a-z0-9-]{3,64}$`).MatchString(sc.Name) || len(sc.Rules) == 0 {
			t.Errorf("%q: want a name of its own, of letters, digits and dashes, and a rule", sc.Name)
		}
		names[sc.Name] = true
		for _, rule := range sc.Rules {
			if checked[rule] = true; !known[rule] {
				t.Errorf("%s is about %s, which is no rule", sc.Name, rule)
			}
		}
	}
	for rule := range known {
		if checked[rule] == slices.Contains(unchecked, rule) {
			t.Errorf("%s: there is a scenario: %v", rule, checked[rule])
		}
	}
	for _, rule := range unchecked {
		if !known[rule] {
			t.Errorf("%s is no rule", rule)
		}
	}
}
