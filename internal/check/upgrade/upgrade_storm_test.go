//go:build linux

package upgrade_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// upgradeStormDefault is the length of a storm without UPGRADE_MINUTES.
const upgradeStormDefault = 5 * time.Second

// upgradeStorm has the faults of a storm between versions: those of processes.
var upgradeStorm = []string{"other version", "kill -9", "kill -9 of all", "SIGTERM", "SIGSTOP"}

// TestUpgrade_NoWrongAnswerInAStorm: nodes change between the versions at random, while
// they are killed and stopped as well. UPGRADE_MINUTES and UPGRADE_SEED are as
// CHAOS_MINUTES and CHAOS_SEED of TestChaos.
func TestUpgrade_NoWrongAnswerInAStorm(t *testing.T) {
	t.Parallel()
	seed := trial.Seed(t, "UPGRADE_SEED")
	t.Logf("UPGRADE_SEED=%d", seed)
	total := trial.Length(t, "UPGRADE_MINUTES", upgradeStormDefault)
	rounds := int(1 + (total-1)/trial.RoundMax)
	all := chaos.NewTally()
	for i := range rounds {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			tally := chaos.NewTally()
			defer func() { all.Merge(tally) }()
			o := trial.Options()
			o.Versions = true
			// Often enough that the log is compacted now and then.
			o.Env = map[string]string{"EPOCH_INTERVAL_MS": []string{"30", "100"}[i%2]}
			chaos.Unleash(t, chaos.StartCluster(t, o), chaos.StormOptions{
				Seed: seed + uint64(i), For: total / time.Duration(rounds), Only: upgradeStorm, Tally: tally,
			})
		})
	}
	t.Logf("UPGRADE_SEED=%d:\n%s", seed, all)
	s := all.Storm()
	s.Command, s.Settings = "make upgrade-storm", fmt.Sprintf("seed %d", seed)
	trial.Record(t, s)
}
