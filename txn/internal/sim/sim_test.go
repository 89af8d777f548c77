package sim_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/isotone/isotone/txn/internal/sim"
)

// seedsDefault is the number of runs of a test without ISOTONE_TXN_SEEDS.
const seedsDefault = 300

// TestSim_FindsNoAnomaly runs seeds. ISOTONE_TXN_SEEDS says how many; ISOTONE_TXN_SEED runs one, and
// logs every step.
func TestSim_FindsNoAnomaly(t *testing.T) {
	if s := os.Getenv("ISOTONE_TXN_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		result := sim.Run(t, sim.Options{Seed: seed, Trace: true})
		t.Logf("%+v", result)
		if result.Violation != nil {
			t.Errorf("seed %d: %v", seed, result.Violation)
		}
		return
	}
	seeds := uint64(seedsDefault)
	if s := os.Getenv("ISOTONE_TXN_SEEDS"); s != "" {
		var err error
		if seeds, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	var sum sim.Result
	for seed := range seeds {
		r := sim.Run(t, sim.Options{Seed: seed})
		if r.Violation != nil {
			t.Fatalf("seed %d: %v\nreplay with ISOTONE_TXN_SEED=%d go test -v -run FindsNoAnomaly ./internal/sim", seed, r.Violation, seed)
		}
		sum.Steps += r.Steps
		sum.Committed += r.Committed
		sum.Aborted += r.Aborted
		sum.Unknown += r.Unknown
		sum.Crashes += r.Crashes
		sum.Late += r.Late
		sum.Cleaned += r.Cleaned
		sum.Collected += r.Collected
	}
	t.Logf("%d runs: %+v", seeds, sum)
	for name, n := range map[string]int{
		"commits": sum.Committed, "aborts": sum.Aborted, "unknown outcomes": sum.Unknown, "crashes": sum.Crashes,
		"late writes": sum.Late, "locks cleaned": sum.Cleaned, "garbage collections": sum.Collected,
	} {
		if uint64(n) < seeds/4 {
			t.Errorf("only %d %s in %d runs: the simulation has become too tame", n, name, seeds)
		}
	}
}

func TestSim_ReplaysASeed(t *testing.T) {
	for seed := range uint64(10) {
		a, b := sim.Run(t, sim.Options{Seed: seed}), sim.Run(t, sim.Options{Seed: seed})
		if a.Fingerprint != b.Fingerprint {
			t.Errorf("seed %d: runs differ: %+v and %+v", seed, a, b)
		}
	}
}
