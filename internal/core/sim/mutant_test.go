//go:build mutants

package sim_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/sim"
)

// firstSeed is the smallest seed that notices each bug, tried first. It saves the search
// as long as nothing changes what the seeds mean; if something does, the search goes on
// from 0, and the table wants to be made anew.
var firstSeed = map[mutant.Mutant]uint64{
	mutant.KeepAllocator:         6,
	mutant.KeepEpochResetIndex:   13,
	mutant.ServeUnreserved:       0,
	mutant.OpenOnOlderTerm:       151,
	mutant.FloorFromClock:        13,
	mutant.TimeFollowsClock:      2,
	mutant.IndexRestarts:         0,
	mutant.RangeOverlaps:         0,
	mutant.IgnoreCeiling:         0,
	mutant.CeilingSinks:          2,
	mutant.RestoreOldCeiling:     2,
	mutant.NoRound:               21,
	mutant.JoinRoundInFlight:     2889,
	mutant.ReuseRoundNumber:      731,
	mutant.CountLearner:          24,
	mutant.AcknowledgeUnsynced:   8,
	mutant.VoteUnsynced:          8,
	mutant.IgnoreFailedSync:      4,
	mutant.AdmitWiped:            84,
	mutant.AdmitStale:            14,
	mutant.RefuseSlowHello:       2,
	mutant.LeaseFromAnswer:       1873,
	mutant.LeaseOnOldClock:       325,
	mutant.LeaseSurvivesTransfer: 1427,
	mutant.LeaseUnconfirmed:      121,
	mutant.GrantFromRequest:      13,
	mutant.InheritLease:          97,
	mutant.ExtendUnasked:         0,
	mutant.ReleaseUsed:           13,
	mutant.ReleaseLate:           2233,
	mutant.RelistReleased:        32,
	mutant.ForgetWorkers:         0,
	mutant.GrantForeignSpace:     7,
	mutant.QueueResponses:        420,
	mutant.ChangeUnchecked:       4,
	mutant.ReleaseInNextStep:     61,
	mutant.IgnoreClocks:          5,
	mutant.VouchByOne:            5,
	mutant.FollowJump:            66,
	mutant.BelieveStaleClocks:    915,
	mutant.RaiseUnasked:          6,
	mutant.ApplyByNode:           6,
	mutant.FormByQuorum:          2,
	mutant.FormUnprepared:        281,
	mutant.FormUnregistered:      2,
	mutant.ClientFloorIgnored:    3,
	mutant.ClientFloorUnbounded:  8,
}

// directed bugs do harm so rarely that random runs take too long to find them. See
// TestMutants_BrokenPromisesAreNoticed in internal/core/replica.
var directed = map[mutant.Mutant]bool{
	mutant.VoteAfterRestart: true, mutant.VoteAfterTermChange: true, mutant.CampaignUnsynced: true,
	mutant.LeaseWithoutSlack: true, mutant.UnboundedLog: true, mutant.MergeSnapshotNotes: true,
}

// TestMutants_AreAllNoticed switches each deliberate bug on and wants the simulator to
// notice it. It prints which seed did. ISOTONE_MUTANT names a single bug, ISOTONE_SEEDS
// ("FROM-TO") the seeds to search.
func TestMutants_AreAllNoticed(t *testing.T) {
	from, to := seedRange(t)
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		only := os.Getenv("ISOTONE_MUTANT")
		if only != "" && only != m.String() || only == "" && directed[m] {
			continue
		}
		mutant.Switch(m)
		seed, known := firstSeed[m]
		if v := violation(seed); known && v != nil {
			t.Logf("%-24v noticed by seed %d: %.120v", m, seed, v)
			continue
		}
		for seed = from; seed < to; seed++ {
			if v := violation(seed); v != nil {
				t.Logf("%-24v noticed by seed %d: %.120v", m, seed, v)
				break
			}
		}
		if seed == to {
			t.Errorf("%v was not noticed by the seeds from %d to %d", m, from, to)
		}
	}
}

func violation(seed uint64) error {
	return sim.Run(sim.Options{Seed: seed, Lease: true}).Violation
}

func seedRange(t *testing.T) (from, to uint64) {
	s := os.Getenv("ISOTONE_SEEDS")
	if s == "" {
		return 0, 10000
	}
	a, b, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("ISOTONE_SEEDS=%q: want FROM-TO", s)
	}
	return from, to
}
