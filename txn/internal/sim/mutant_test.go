//go:build mutants

package sim_test

import (
	"os"
	"strings"
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/sim"
)

// seedsMutant is how many seeds are searched for a bug.
const seedsMutant = 3000

// TestMutants_AreAllNoticed switches each deliberate bug on and wants the simulator to notice an
// anomaly; that nothing works any more does not count. It prints which seed did. ISOTONE_TXN_MUTANT names a single bug.
func TestMutants_AreAllNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		if only := os.Getenv("ISOTONE_TXN_MUTANT"); only != "" && only != m.String() {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			mutant.Switch(m)
			for seed := range uint64(seedsMutant) {
				if r := sim.Run(t, sim.Options{Seed: seed}); r.Violation != nil && !strings.HasPrefix(r.Violation.Error(), "liveness") {
					t.Logf("noticed by seed %d: %.200v", seed, r.Violation)
					return
				}
			}
			t.Errorf("not noticed by %d seeds", seedsMutant)
		})
	}
}
