//go:build mutants

package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// TestMutants_BrokenPromisesAreNoticed switches on the bugs that do harm so
// rarely that random runs take too long to find them.
func TestMutants_BrokenPromisesAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for m, broken := range map[mutant.Mutant]func(*testing.T) bool{
		mutant.VoteAfterRestart:    votesRightAfterStart,
		mutant.VoteAfterTermChange: votesAfterTermChange,
		mutant.CampaignUnsynced:    campaignsUnsynced,
		mutant.LeaseWithoutSlack:   leaseOutlastsPromise,
		mutant.UnboundedLog:        outgrowsItsBound,
		mutant.MergeSnapshotNotes:  func(t *testing.T) bool { return forgetsSnapshot(t, true) },
	} {
		mutant.Switch(m)
		if !broken(t) {
			t.Errorf("%v was not noticed", m)
		}
	}
}
