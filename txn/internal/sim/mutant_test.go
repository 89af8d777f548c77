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
const seedsMutant = 6000

// firstSeed is a seed that notices each bug, the smallest when the table was made, and is tried first.
// It saves the search as long as nothing changes what the seeds mean; if something does, the search
// goes on from 0, and the table wants to be made anew.
var firstSeed = map[mutant.Mutant]uint64{
	mutant.SecondariesFirst:   7,
	mutant.CleanUnasked:       0,
	mutant.StartLate:          7,
	mutant.CommitEarly:        6,
	mutant.OracleRepeats:      14,
	mutant.OracleGoesBack:     6,
	mutant.RollBackUnmarked:   47,
	mutant.ForwardUncommitted: 0,
	mutant.ReadIgnoresLocks:   0,
	mutant.ScanIgnoresLocks:   3,
	mutant.ConflictIgnored:    3,
	mutant.LockStolen:         22,
	mutant.PrimaryUnchecked:   21,
	mutant.SecondaryUnchecked: 687,
	mutant.UnknownIsFailed:    3,
	mutant.UnknownIsDone:      0,
	mutant.RevisionsRepeat:    136,
	mutant.MarkIgnored:        25,
	mutant.ReadBelowSafe:      311,
	mutant.CommitBelowSafe:    1059,
	mutant.CollectUnresolved:  98,
	mutant.CollectTooMuch:     0,
	mutant.RecordForgotten:    7,
	mutant.UndoUnknown:        54,
	mutant.MarkUnlocks:        708,
	mutant.CollectRecords:     186,
	mutant.SeenTooNew:         5,
	mutant.LostRecordAborts:   944,
	mutant.PartialScan:        0,
	mutant.StoreShowsEarly:    14,
	mutant.StoreAnswersEarly:  2,
	mutant.StoreGoesOn:        1,
	mutant.FailoverLags:       2,
	mutant.FormerServes:       2,
	mutant.StampUntaken:       153,
	mutant.StampDoneEarly:     36,
	mutant.FenceIgnored:       2,
	mutant.FrontierUnasked:    130,
}

// directed has the bugs that have tests of their own: chance hardly comes to the first four, the next are no
// anomalies, and the others are in stores.
var directed = map[mutant.Mutant]bool{
	mutant.VoidLockCounts: true, mutant.VoidTooSoon: true, mutant.DoubtIsDone: true, mutant.FrontierOnce: true,
	mutant.HoldsForever: true, mutant.RenewalUnseen: true, mutant.SightingsGrow: true,
	mutant.BoltShowsUnsynced: true, mutant.BoltGoesOn: true, mutant.PgShowsUnreplicated: true, mutant.PgTrustsRefusals: true, mutant.PgFenceUnlocked: true,
}

// TestMutants_AreAllNoticed switches each deliberate bug on and wants the simulator to notice an
// anomaly; that nothing works any more does not count. It prints which seed did. ISOTONE_TXN_MUTANT
// names a single bug.
func TestMutants_AreAllNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		if only := os.Getenv("ISOTONE_TXN_MUTANT"); only != "" && only != m.String() {
			continue
		}
		if directed[m] {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			mutant.Switch(m)
			if seed, ok := firstSeed[m]; ok && notices(t, seed, m.IsOfFrontier()) {
				return
			}
			for seed := range uint64(seedsMutant) {
				if notices(t, seed, m.IsOfFrontier()) {
					return
				}
			}
			t.Errorf("not noticed by %d seeds", seedsMutant)
		})
	}
}

// notices reports whether a run finds an anomaly, with readers at the frontier or without.
func notices(t *testing.T, seed uint64, frontier bool) bool {
	v := sim.Run(t, sim.Options{Seed: seed, Frontier: frontier}).Violation
	if v == nil || strings.HasPrefix(v.Error(), "liveness") {
		return false
	}
	t.Logf("noticed by seed %d: %.200v", seed, v)
	return true
}
