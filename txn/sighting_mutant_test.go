//go:build mutants

package txn

import (
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
)

func TestMutants_GrowthOfSightingsIsNoticed(t *testing.T) {
	mutant.Switch(mutant.SightingsGrow)
	defer mutant.Switch(mutant.None)
	if n, _ := sightingsAfter(sightingsMax + 1000); n <= sightingsMax {
		t.Errorf("%v was not noticed: %d transactions are remembered", mutant.SightingsGrow, n)
	}
}
