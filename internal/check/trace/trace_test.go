package trace_test

import (
	"bytes"
	"flag"
	"testing"

	"github.com/isotone/isotone/internal/check/trace"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/sim"
	"github.com/isotone/isotone/spec"
)

var first, runs = flag.Uint64("first", 0, "the first seed"), flag.Uint64("runs", 12, "the number of simulated runs")

// check holds a simulated run against the specification but for some rules, and returns what that says, how many events there were, and what the simulator says.
func check(seed uint64, ignored ...string) (v *spec.Violation, events uint64, simulated error) {
	s := spec.New()
	s.Ignored = ignored
	r := sim.Run(sim.Options{Seed: seed, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return trace.Observe(cfg, func(e spec.Event) { v = s.Step(e) })
	}})
	return v, s.Events(), r.Violation
}

// TestSpec_PermitsWhatTheCodeDoes: each step of simulated runs is one that the specification has.
func TestSpec_PermitsWhatTheCodeDoes(t *testing.T) {
	var all uint64
	for seed := *first; seed < *first+*runs; seed++ {
		v, events, err := check(seed)
		if v != nil || err != nil {
			t.Errorf("seed %d: the specification says %v, the simulator %v", seed, v, err)
		}
		all += events
	}
	t.Log(all, "events")
}

// TestObserve_ChangesNothing: a run that is observed is the same run.
func TestObserve_ChangesNothing(t *testing.T) {
	plain := sim.Run(sim.Options{Seed: 3, Lease: true})
	seen := sim.Run(sim.Options{Seed: 3, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return trace.Observe(cfg, func(spec.Event) {})
	}})
	if plain.Hash != seen.Hash {
		t.Errorf("the run has the hash %x, and %x when observed", plain.Hash, seen.Hash)
	}
}

// TestFile_GivesBackWhatWasWritten: events that go through a file are the same, and those of several processes come in the order in which they happened.
func TestFile_GivesBackWhatWasWritten(t *testing.T) {
	var file bytes.Buffer
	w := trace.NewWriter(&file)
	var want []spec.Event
	sim.Run(sim.Options{Seed: 3, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return trace.Observe(cfg, func(e spec.Event) {
			want = append(want, e)
			w.Write(e)
		})
	}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	s := spec.New()
	err := trace.Read(&file, func(e spec.Event) error {
		if a, b := trace.Line(e), trace.Line(want[n]); !bytes.Equal(a, b) {
			t.Fatalf("event %d is %s, want %s", n, a, b)
		}
		n++
		if v := s.Step(e); v != nil {
			return v
		}
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d events of %d were read: %v", n, len(want), err)
	}
}
