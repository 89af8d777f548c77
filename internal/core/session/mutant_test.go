//go:build mutants

package session_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

func TestMutants_OfSessionsAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		if !m.IsOfSession() {
			continue
		}
		mutant.Switch(m)
		found := false
		for name, rule := range rules {
			if err := rule(); err != nil {
				t.Logf("%v: %s: %v", m, name, err)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%v is not noticed", m)
		}
	}
}
