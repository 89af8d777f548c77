//go:build mutants

package search_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// TestMutants_OfClientsAreNoticed switches on the bugs of clients, which the simulator notices, too, if
// they do harm there.
func TestMutants_OfClientsAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	noticed := map[mutant.Mutant]bool{}
	for _, rule := range rules {
		if mutant.Switch(rule.bug); rule.bug != mutant.None && rule.check() != nil {
			noticed[rule.bug] = true
		}
	}
	for _, m := range mutant.All() {
		if m.IsOfClient() != noticed[m] {
			t.Errorf("%v: of a client: %v, noticed: %v", m, m.IsOfClient(), noticed[m])
		}
	}
}
