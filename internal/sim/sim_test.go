package sim_test

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/sim"
)

// seeds is how many runs a test makes: a few normally, more with ISOTONE_SIM_RUNS.
func seeds(t *testing.T, normal int) int {
	if s := os.Getenv("ISOTONE_SIM_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return normal
}

func TestRun_KeepsEveryPromise(t *testing.T) {
	var stats sim.Stats
	var coverage sim.Coverage
	began := time.Now()
	offset, _ := strconv.ParseUint(os.Getenv("ISOTONE_SIM_SEED"), 10, 64)
	for seed := range uint64(seeds(t, 200)) {
		r := sim.Run(sim.Options{Seed: seed + offset})
		if r.Violation != nil {
			t.Errorf("seed %d: %v", seed+offset, r.Violation)
		}
		stats.Add(r.Stats)
		coverage.Add(r.Coverage)
	}
	var table bytes.Buffer
	_, _ = coverage.WriteTo(&table)
	t.Logf("%+v\n%s", stats, table.String())
	t.Logf("%.0f simulated seconds per second", stats.Simulated.Seconds()/time.Since(began).Seconds())
	kinds, pairs := coverage.Missing()
	t.Logf("missing: %v, %d pairs %v", kinds, len(pairs), pairs)
}

func TestRun_TheSameSeedGivesTheSameRun(t *testing.T) {
	for seed := range uint64(20) {
		a, b := sim.Run(sim.Options{Seed: seed}), sim.Run(sim.Options{Seed: seed})
		if a.Hash != b.Hash || a.Stats != b.Stats {
			t.Errorf("seed %d: %016x %+v, then %016x %+v", seed, a.Hash, a.Stats, b.Hash, b.Stats)
		}
	}
	if sim.Run(sim.Options{Seed: 1}).Hash == sim.Run(sim.Options{Seed: 2}).Hash {
		t.Error("two seeds gave the same run")
	}
}
