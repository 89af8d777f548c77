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

// firstSeed is a seed that notices each bug, the smallest when it was searched for. It is tried first. It saves the search
// as long as nothing changes what the seeds mean; if something does, the search goes on
// from 0, and the table wants to be made anew.
var firstSeed = map[mutant.Mutant]uint64{
	mutant.KeepAllocator:        0,
	mutant.KeepEpochResetIndex:  8,
	mutant.ServeUnreserved:      0,
	mutant.FloorFromClock:       0,
	mutant.TimeFollowsClock:     0,
	mutant.IndexRestarts:        0,
	mutant.RangeOverlaps:        0,
	mutant.IgnoreCeiling:        2,
	mutant.CeilingSinks:         0,
	mutant.RestoreOldCeiling:    1,
	mutant.NoRound:              1,
	mutant.JoinRoundInFlight:    1,
	mutant.ReuseRoundNumber:     42,
	mutant.CountLearner:         1401,
	mutant.ConfirmByTooFew:      99,
	mutant.AcknowledgeUnsynced:  2,
	mutant.VoteUnsynced:         14,
	mutant.IgnoreFailedSync:     6,
	mutant.AdmitWiped:           2,
	mutant.AdmitStale:           2,
	mutant.RefuseSlowHello:      6,
	mutant.LeaseFromAnswer:      287,
	mutant.LeaseOnOldClock:      230,
	mutant.LeaseUnconfirmed:     226,
	mutant.GrantFromRequest:     98,
	mutant.InheritLease:         94,
	mutant.ExtendUnasked:        0,
	mutant.ReleaseUsed:          38,
	mutant.RelistReleased:       25,
	mutant.ForgetWorkers:        0,
	mutant.GrantForeignSpace:    11,
	mutant.ChangeUnchecked:      13,
	mutant.ReleaseInNextStep:    34,
	mutant.IgnoreClocks:         6,
	mutant.VouchByOne:           6,
	mutant.FollowJump:           3,
	mutant.BelieveStaleClocks:   113,
	mutant.RaiseUnasked:         165,
	mutant.ApplyByNode:          2,
	mutant.FormByQuorum:         1,
	mutant.FormUnprepared:       38,
	mutant.FormUnregistered:     6,
	mutant.FloorIgnored:         8,
	mutant.CopyWins:             72,
	mutant.RestoreBelow:         63,
	mutant.RestoreOwnFloor:      16,
	mutant.FreeRestored:         207,
	mutant.ClientFloorIgnored:   3,
	mutant.ClientFloorUnbounded: 46,
	mutant.RevokeAtOnce:         12,
	mutant.RenewRevoked:         4,
	mutant.ClockFromWall:        17,
	mutant.ClockFromOwnEstimate: 17,
	mutant.JumpInTerm:           1,
	mutant.CoarseEpoch:          1,
	mutant.OracleByWall:         1,
	mutant.LimitUnconfirmed:     587,
	mutant.LimitOverCeiling:     1,
	mutant.NoWait:               17,
	mutant.OracleDoesNotWait:    1,
	mutant.ReleaseEarly:         1,
	mutant.ReleaseAndTell:       235,
	mutant.FromReceive:          1,
	mutant.EarlyFromSend:        1,
	mutant.HalfRTT:              1,
	mutant.NoGrowth:             1,
	mutant.NoUncertainty:        1,
	mutant.AnswerOfAnother:      1,
	mutant.MergeTerms:           1,
	mutant.LimitOfNewer:         1,
	mutant.IgnoreLimit:          1,
	mutant.LeaderIgnoresLimit:   1,
	mutant.LimitByEarliest:      1293,
	mutant.StaleRelay:           1,
	mutant.ClockBeforeCall:      1,
	mutant.ClockStopsInSuspend:  1,
	mutant.ClockBeforeEstimate:  1,
	mutant.NoCommitWait:         1,
	mutant.WaitOnLatest:         219,
	mutant.StampEarliest:        1,
	mutant.GeneratorForgets:     1,
	mutant.SameTime64:           0,
	mutant.RangeOverlaps64:      0,
	mutant.IgnoreCeiling64:      0,
	mutant.AheadOfClock64:       36,
	mutant.BehindClock64:        1,
	mutant.DropPromise:          0,
	mutant.SaveUnsynced:         1,
	mutant.RetryFailedSync:      6,
	mutant.NamesUnsynced:        1,
	mutant.SpareBeforeNames:     1220,
	mutant.GoOnInTail:           1,
	mutant.AcceptBadChecksum:    70,
	mutant.DamageIsTail:         27,
	mutant.DialRecordedOnly:     10,
	mutant.IgnoreMoved:          84,
	mutant.NeverSuspect:         6,
	mutant.ForgetMembers:        159,
	mutant.NeverRefresh:         6,
	mutant.CarryNoFloor:         1,
}

// TestMutants_AreAllNoticed switches each deliberate bug on and wants the simulator to
// notice it. It prints which seed did. ISOTONE_MUTANT names a single bug, ISOTONE_SEEDS
// ("FROM-TO") the seeds to search.
func TestMutants_AreAllNoticed(t *testing.T) {
	from, to := seedRange(t)
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		only := os.Getenv("ISOTONE_MUTANT")
		seed, known := firstSeed[m]
		if only != "" && only != m.String() || only == "" && (m.IsDirected() || m.IsOfClient() && !known) {
			continue
		}
		mutant.Switch(m)
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
