//go:build mutants

package txn_test

import (
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
)

// TestMutants_LateLocksAreNoticed is for the bug that the simulator does not come to by chance.
func TestMutants_LateLocksAreNoticed(t *testing.T) {
	mutant.Switch(mutant.VoidLockCounts)
	defer mutant.Switch(mutant.None)
	if got := resurrect(t); got != "1" {
		t.Errorf("%v was not noticed: a deleted key has %q", mutant.VoidLockCounts, got)
	}
}
