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
	mutant.KeepEpochResetIndex:   25,
	mutant.ServeUnreserved:       0,
	mutant.OpenOnOlderTerm:       809,
	mutant.FloorFromClock:        13,
	mutant.TimeFollowsClock:      2,
	mutant.IndexRestarts:         0,
	mutant.RangeOverlaps:         0,
	mutant.IgnoreCeiling:         0,
	mutant.CeilingSinks:          2,
	mutant.RestoreOldCeiling:     1,
	mutant.NoRound:               3,
	mutant.JoinRoundInFlight:     809,
	mutant.ReuseRoundNumber:      809,
	mutant.CountLearner:          2,
	mutant.AcknowledgeUnsynced:   8,
	mutant.VoteUnsynced:          26,
	mutant.IgnoreFailedSync:      19,
	mutant.AdmitWiped:            14,
	mutant.AdmitStale:            8,
	mutant.RefuseSlowHello:       12,
	mutant.LeaseFromAnswer:       1441,
	mutant.LeaseOnOldClock:       205,
	mutant.LeaseSurvivesTransfer: 107,
	mutant.LeaseUnconfirmed:      377,
	mutant.GrantFromRequest:      88,
	mutant.InheritLease:          64,
	mutant.ExtendUnasked:         0,
	mutant.ReleaseUsed:           47,
	mutant.ReleaseLate:           2086,
	mutant.RelistReleased:        1,
	mutant.ForgetWorkers:         2,
	mutant.GrantForeignSpace:     1,
	mutant.QueueResponses:        553,
	mutant.ChangeUnchecked:       3,
	mutant.ReleaseInNextStep:     39,
	mutant.IgnoreClocks:          2,
	mutant.VouchByOne:            2,
	mutant.FollowJump:            48,
	mutant.BelieveStaleClocks:    136,
	mutant.RaiseUnasked:          11,
	mutant.ApplyByNode:           2,
	mutant.FormByQuorum:          2,
	mutant.FormUnprepared:        46,
	mutant.FormUnregistered:      2,
	mutant.FloorIgnored:          8,
	mutant.ForgetRemoved:         2398,
	mutant.CopyWins:              25,
	mutant.RestoreBelow:          8,
	mutant.RestoreOwnFloor:       0,
	mutant.FreeRestored:          422,
	mutant.ClientFloorIgnored:    3,
	mutant.ClientFloorUnbounded:  3,
}

// TestMutants_AreAllNoticed switches each deliberate bug on and wants the simulator to
// notice it. It prints which seed did. ISOTONE_MUTANT names a single bug, ISOTONE_SEEDS
// ("FROM-TO") the seeds to search.
func TestMutants_AreAllNoticed(t *testing.T) {
	from, to := seedRange(t)
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		only := os.Getenv("ISOTONE_MUTANT")
		if only != "" && only != m.String() || only == "" && m.IsDirected() {
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
