//go:build mutants

package txn_test

import (
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
)

// TestMutants_LateLocksAreNoticed is for bugs that the simulator hardly comes to by chance.
func TestMutants_LateLocksAreNoticed(t *testing.T) {
	mutant.Switch(mutant.VoidLockCounts)
	defer mutant.Switch(mutant.None)
	if got := resurrect(t); got != "1" {
		t.Errorf("%v was not noticed: a deleted key has %q", mutant.VoidLockCounts, got)
	}
	mutant.Switch(mutant.VoidTooSoon)
	if got := resolvedMeanwhile(t); got != "old" {
		t.Errorf("%v was not noticed: the snapshot has %q", mutant.VoidTooSoon, got)
	}
}

// TestMutants_OfFrontiersAreNoticed is for bugs that the simulator hardly comes to by chance.
func TestMutants_OfFrontiersAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	mutant.Switch(mutant.DoubtIsDone)
	if got := lateCommit(t); got != "old new new" {
		t.Errorf("%v was not noticed: the values are %s", mutant.DoubtIsDone, got)
	}
	mutant.Switch(mutant.FrontierOnce)
	if got := collectedMeanwhile(t); got != "old" {
		t.Errorf("%v was not noticed: the value is %s", mutant.FrontierOnce, got)
	}
}

// TestMutants_OfSightingsAreNoticed is for bugs that cost time, or memory, and never an anomaly.
func TestMutants_OfSightingsAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	mutant.Switch(mutant.HoldsForever)
	if got := deadWhileTimeHolds(t); got != "locked locked locked" {
		t.Errorf("%v was not noticed: the lock is %s", mutant.HoldsForever, got)
	}
	mutant.Switch(mutant.RenewalUnseen)
	if _, err := aliveWhileTimeHolds(t); err == nil {
		t.Errorf("%v was not noticed", mutant.RenewalUnseen)
	}
}
