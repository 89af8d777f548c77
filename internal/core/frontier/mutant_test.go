//go:build mutants

package frontier_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// TestMutants_OfFrontiersAreNoticed by a simulation, or by a test of its own.
func TestMutants_OfFrontiersAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		if !m.IsOfFrontier() {
			continue
		}
		mutant.Switch(m)
		found := sealWhileWritersBind() != nil
		for seed := uint64(0); seed < 1000 && !found; seed++ {
			if err := run(seed); err != nil {
				t.Logf("%v: seed %d: %v", m, seed, err)
				found = true
			}
		}
		if !found {
			t.Errorf("%v is not noticed", m)
		}
	}
}
