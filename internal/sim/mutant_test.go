//go:build mutants

package sim_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/mutant"
	"github.com/isotone/isotone/internal/sim"
)

// firstSeed is the smallest seed that notices each bug, tried first. It saves the search
// as long as nothing changes what the seeds mean; if something does, the search goes on
// from 0, and the table wants to be made anew.
var firstSeed = map[mutant.Mutant]uint64{
	mutant.KeepAllocator:         1,
	mutant.KeepEpochResetIndex:   5,
	mutant.ServeUnreserved:       0,
	mutant.OpenOnOlderTerm:       128,
	mutant.FloorFromClock:        1,
	mutant.TimeFollowsClock:      1,
	mutant.IndexRestarts:         0,
	mutant.RangeOverlaps:         0,
	mutant.IgnoreCeiling:         0,
	mutant.CeilingSinks:          3,
	mutant.RestoreOldCeiling:     1,
	mutant.NoRound:               21,
	mutant.JoinRoundInFlight:     565,
	mutant.ReuseRoundNumber:      470,
	mutant.CountLearner:          61,
	mutant.AcknowledgeUnsynced:   1,
	mutant.VoteUnsynced:          0,
	mutant.IgnoreFailedSync:      4,
	mutant.AdmitWiped:            4,
	mutant.AdmitStale:            4,
	mutant.RefuseSlowHello:       2,
	mutant.LeaseFromAnswer:       805,
	mutant.LeaseOnOldClock:       127,
	mutant.LeaseSurvivesTransfer: 5,
	mutant.LeaseUnconfirmed:      57,
}

// directed bugs do harm so rarely that random runs take too long to find them. See
// TestMutants_BrokenPromisesAreNoticed in internal/replica.
var directed = map[mutant.Mutant]bool{
	mutant.VoteAfterRestart: true, mutant.VoteAfterTermChange: true, mutant.CampaignUnsynced: true,
	mutant.LeaseWithoutSlack: true,
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
