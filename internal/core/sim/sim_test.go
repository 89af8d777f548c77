package sim_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/sim"
)

// The runs of these tests are few; "isotone sim --runs N" makes as many as one likes.
const runs = 100

func TestRun_KeepsEveryPromiseUnderEveryKindOfFault(t *testing.T) {
	var stats sim.Stats
	var coverage sim.Coverage
	for seed := range uint64(runs) {
		r := sim.Run(sim.Options{Seed: seed, Lease: true})
		if r.Violation != nil {
			t.Errorf("seed %d: %v", seed, r.Violation)
		}
		stats.Add(r.Stats)
		coverage.Add(r.Coverage)
	}
	t.Logf("%+v", stats)
	if kinds, _ := coverage.Missing(); len(kinds) > 0 {
		t.Errorf("in %d runs no fault of kind %v occurred", runs, kinds)
	}
	if stats.Answered < stats.Operations/4 || stats.Terms < 2*runs {
		t.Errorf("the runs are too harsh or too tame to say anything: %+v", stats)
	}
	if stats.IDs < 5_000*runs || stats.WorkerGrants < 5*runs || stats.WorkerRenewals < 20*runs || stats.WorkerTakeovers < runs ||
		stats.WorkerRestarts < runs/4 || stats.WorkerReleases < 2*runs || stats.WorkerRefusals < 10*runs ||
		stats.WorkerRevocations < runs/2 {
		t.Errorf("the runs do too little with worker leases to say anything: %+v", stats)
	}
	if stats.Timelines < 100*runs || stats.TimelineChanges < 2*runs {
		t.Errorf("the runs do too little with timelines to say anything: %+v", stats)
	}
	if stats.RedisAnswers < 20*runs || stats.RedisLocks < runs {
		t.Errorf("the runs do too little with locks of Redis libraries to say anything: %+v", stats)
	}
	if stats.Followed < 2*runs {
		t.Errorf("clients find too few leaders to say anything: %+v", stats)
	}
	if stats.BrokenLinks < runs/8 {
		t.Errorf("links stayed broken in %d runs, want some of %d", stats.BrokenLinks, runs)
	}
	if stats.Readings < 200*runs || stats.Waited < 30*runs || stats.Contradictions == 0 {
		t.Errorf("the runs do too little with the cluster clock to say anything: %+v", stats)
	}
}

func TestRun_TheSameSeedGivesTheSameRun(t *testing.T) {
	for seed := range uint64(20) {
		a, b := sim.Run(sim.Options{Seed: seed, Lease: true}), sim.Run(sim.Options{Seed: seed, Lease: true})
		if a.Hash != b.Hash || a.Stats != b.Stats {
			t.Errorf("seed %d: %016x %+v, then %016x %+v", seed, a.Hash, a.Stats, b.Hash, b.Stats)
		}
	}
	if sim.Run(sim.Options{Seed: 1}).Hash == sim.Run(sim.Options{Seed: 2}).Hash {
		t.Error("two seeds gave the same run")
	}
}

func BenchmarkRun(b *testing.B) {
	var stats sim.Stats
	for seed := uint64(0); b.Loop(); seed++ {
		stats.Add(sim.Run(sim.Options{Seed: seed, Lease: true}).Stats)
	}
	b.ReportMetric(stats.Simulated.Seconds()/b.Elapsed().Seconds(), "simulated-s/s")
	b.ReportMetric(float64(stats.Operations)/b.Elapsed().Seconds(), "operations/s")
}
