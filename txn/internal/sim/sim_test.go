package sim_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/txn/internal/sim"
)

// seedsDefault is the number of runs without ISOTONE_TXN_SEEDS.
const seedsDefault = 600

// TestSim_FindsNoAnomaly runs seeds. ISOTONE_TXN_SEEDS ("FROM-TO") says which; ISOTONE_TXN_SEED runs
// one, and logs every step.
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
	from, to := seedRange(t)
	var sum sim.Result
	for seed := from; seed < to; seed++ {
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
		sum.Restarts += r.Restarts
	}
	t.Logf("%d runs: %+v", to-from, sum)
	for name, n := range map[string]int{
		"commits": sum.Committed, "aborts": sum.Aborted, "unknown outcomes": sum.Unknown, "crashes": sum.Crashes,
		"late writes": sum.Late, "locks cleaned": sum.Cleaned, "garbage collections": sum.Collected,
		"restarts": sum.Restarts,
	} {
		if uint64(n) < (to-from)/4 {
			t.Errorf("only %d %s in %d runs: the simulation has become too tame", n, name, to-from)
		}
	}
}

// seedsFrontier is the number of runs with readers at the frontier.
const seedsFrontier = 400

// TestSim_SnapshotsAtTheFrontierNeverChange has commit timestamps be stamps of a group whose members die, lose their sessions and write late, and clients read
// everything at its frontier, and again later.
func TestSim_SnapshotsAtTheFrontierNeverChange(t *testing.T) {
	var sum sim.Result
	for seed := range uint64(seedsFrontier) {
		r := sim.Run(t, sim.Options{Seed: seed, Frontier: true})
		if r.Violation != nil {
			t.Fatalf("seed %d: %v", seed, r.Violation)
		}
		sum.Committed += r.Committed
		sum.Crashes += r.Crashes
		sum.Fenced += r.Fenced
		sum.AtFrontier += r.AtFrontier
		sum.Again += r.Again
	}
	t.Logf("%d runs: %+v", seedsFrontier, sum)
	for name, n := range map[string]int{"commits": sum.Committed, "crashes": sum.Crashes, "snapshots": sum.AtFrontier, "snapshots read again": sum.Again} {
		if n < seedsFrontier/4 {
			t.Errorf("only %d %s in %d runs: the simulation has become too tame", n, name, seedsFrontier)
		}
	}
	if sum.Fenced == 0 {
		t.Error("no late commit was fenced")
	}
}

func TestSim_ReplaysASeed(t *testing.T) {
	for seed := range uint64(20) {
		a, b := sim.Run(t, sim.Options{Seed: seed}), sim.Run(t, sim.Options{Seed: seed})
		if a.Fingerprint != b.Fingerprint {
			t.Errorf("seed %d: runs differ: %+v and %+v", seed, a, b)
		}
	}
}

func seedRange(t *testing.T) (from, to uint64) {
	s := os.Getenv("ISOTONE_TXN_SEEDS")
	if s == "" {
		return 0, seedsDefault
	}
	a, b, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("ISOTONE_TXN_SEEDS=%q: want FROM-TO", s)
	}
	return from, to
}
