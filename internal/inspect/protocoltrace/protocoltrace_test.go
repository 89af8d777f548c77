package protocoltrace_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/sim"
	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/spec"
)

var first, runs = flag.Uint64("first", 0, "the first seed"), flag.Uint64("runs", 12, "the number of simulated runs")

// check checks a simulated run against the specification but for some rules, and returns what that says, how many events there were, and what the simulator says.
// The run ends when the specification refuses it.
func check(seed uint64, ignored ...string) (v *spec.Violation, events uint64, simulated error) {
	s := spec.New()
	s.Ignored = ignored
	r := sim.Run(sim.Options{Seed: seed, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return protocoltrace.Observe(cfg, func(e spec.Event) {
			if v = s.Step(e); v != nil {
				panic(v) // which ends the run
			}
		})
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

// TestObserve_ChangesNothing: a run that is observed is the same run, also one with sessions.
func TestObserve_ChangesNothing(t *testing.T) {
	plain := sim.Run(sim.Options{Seed: 10, Lease: true})
	seen := sim.Run(sim.Options{Seed: 10, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return protocoltrace.Observe(cfg, func(spec.Event) {})
	}})
	if plain.Hash != seen.Hash {
		t.Errorf("the run has the hash %x, and %x when observed", plain.Hash, seen.Hash)
	}
}

// TestMerge_GivesBackTheOrderOfTheSteps: what processes write to logs of their own is merged into the order in which it happened. A process that is killed while it writes leaves a line
// that is cut, and the one that follows it goes on below.
func TestMerge_GivesBackTheOrderOfTheSteps(t *testing.T) {
	dir, now := t.TempDir(), int64(0)
	clock := func() int64 { now++; return now }
	var want []spec.Event
	writers := map[uint64]*protocoltrace.Writer{}
	r := sim.Run(sim.Options{Seed: 10, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		node := cfg.Self.NodeID
		path := filepath.Join(dir, fmt.Sprint(node))
		if w := writers[node]; w != nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(f, `{"k":"answer","n":`) // it was killed
			f.Close()
		}
		w, err := protocoltrace.Open(path, clock)
		if err != nil {
			t.Fatal(err)
		}
		writers[node] = w
		return tee{w.Observe(cfg, func(err error) { t.Error(err) }), protocoltrace.Observe(cfg, func(e spec.Event) { want = append(want, e) })}
	}})
	if r.Violation != nil || len(writers) < 2 {
		t.Fatal(r.Violation, writers)
	}
	var logs []io.Reader
	for _, node := range slices.Sorted(maps.Keys(writers)) {
		if err := writers[node].Close(); err != nil {
			t.Error(err)
		}
		f, err := os.Open(filepath.Join(dir, fmt.Sprint(node)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		logs = append(logs, f)
	}
	var got []spec.Event
	if _, err := protocoltrace.Check(logs, func(e spec.Event) error {
		e.Real = 0
		got = append(got, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// A process that begins may come later than in the run: with its first step.
	steps := func(list []spec.Event) []spec.Event {
		began := map[uint64]bool{}
		return slices.DeleteFunc(slices.Clone(list), func(e spec.Event) bool {
			began[e.Process] = began[e.Process] && e.Kind != spec.Start || e.Kind == spec.BeginStep
			return !began[e.Process] || e.Kind == spec.Restore || e.Kind == spec.End
		})
	}
	if !reflect.DeepEqual(steps(got), steps(want)) {
		t.Errorf("%d events came back, want %d in their order", len(steps(got)), len(steps(want)))
	}
}

// tee has two observers see the same.
type tee [2]replica.Observer

func (t tee) Before(in *replica.Input) { t[0].Before(in); t[1].Before(in) }

func (t tee) After(r *replica.Replica, e *replica.Effects) { t[0].After(r, e); t[1].After(r, e) }

// TestMerge_RefusesWhatIsNoTrace, and says where.
func TestMerge_RefusesWhatIsNoTrace(t *testing.T) {
	for text, want := range map[string]string{
		"hello\n":               "line 1 is no event",
		"{}\n":                  "line 1 is no event",
		`{"k":"entry","n":1}`:   "line 1 is no event",
		`{"k":"restore","n":1}`: "line 1 is no event",
		`{"k":"met","n":1}`:     "line 1 is no event",
		`{"k":"bounds","n":1}`:  "line 1 is no event",
		`{"k":"append","n":1,"i":2,"proposed":[{}]}`:     "line 1 is no event",
		`{"k":"start","n":1}` + "\n[]\n[]\n":             "line 2 is no event",
		`{"k":"start","n":1}` + "\n[]\n{\"k\":\"step\"}": "line 2 is no event",
	} {
		err := protocoltrace.Merge([]io.Reader{strings.NewReader(text)}, func(spec.Event) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := protocoltrace.Merge([]io.Reader{strings.NewReader("")}, func(spec.Event) error { return nil }); err != nil {
		t.Errorf("an empty trace: %v", err)
	}
}

// TestSpec_BelievesNodesWithoutEvents: the events of any one node of a run are permitted without those of the others, also what it answers by a lease.
func TestSpec_BelievesNodesWithoutEvents(t *testing.T) {
	leased := 0
	for seed := uint64(0); seed < 6; seed++ {
		specs, refused := map[uint64]*spec.Spec{}, map[uint64]*spec.Violation{}
		sim.Run(sim.Options{Seed: seed, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
			s := specs[cfg.Self.NodeID]
			if s == nil {
				s = spec.New()
				specs[cfg.Self.NodeID] = s
			}
			return protocoltrace.Observe(cfg, func(e spec.Event) {
				if v := s.Step(e); v != nil {
					refused[e.Node] = v
				}
				if e.Kind == spec.Request && e.Lease {
					leased++
				}
			})
		}})
		for node, v := range refused {
			t.Errorf("seed %d, node %d: %v", seed, node, v)
		}
	}
	if leased == 0 {
		t.Error("no request could be answered by a lease")
	}
}

// TestSpec_RefusesARangeThatEndsBeforeItBegins, of the default order and of timelines.
func TestSpec_RefusesARangeThatEndsBeforeItBegins(t *testing.T) {
	for _, timeline := range []bool{false, true} {
		var v *spec.Violation
		found := false
		for seed := uint64(0); seed < 12 && !found; seed++ {
			s := spec.New()
			sim.Run(sim.Options{Seed: seed, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
				return protocoltrace.Observe(cfg, func(e spec.Event) {
					if !found && e.Kind == spec.Answer && len(e.Ranges) > 0 && (e.Tenure != nil) == timeline {
						found, e.Ranges = true, slices.Clone(e.Ranges)
						e.Ranges[0].Last.Time = e.Ranges[0].First.Time - 1
						v = s.Step(e)
						return
					}
					s.Step(e)
				})
			}})
		}
		if !found || v == nil || v.Rule != "once" {
			t.Errorf("of a timeline: %v: found %v, %v", timeline, found, v)
		}
	}
}

// TestMerge_LogsMayEndAtAnyStep, as those of nodes that run while their logs are copied one after the other: what a node says after the end of its log is believed.
func TestMerge_LogsMayEndAtAnyStep(t *testing.T) {
	dir, now := t.TempDir(), int64(0)
	writers := map[uint64]*protocoltrace.Writer{}
	sim.Run(sim.Options{Seed: 3, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		node := cfg.Self.NodeID
		if writers[node] == nil {
			w, err := protocoltrace.Open(filepath.Join(dir, fmt.Sprint(node)), func() int64 { now++; return now })
			if err != nil {
				t.Fatal(err)
			}
			writers[node] = w
		}
		return writers[node].Observe(cfg, func(err error) { t.Error(err) })
	}})
	texts := map[uint64]string{}
	for node, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(node)))
		if err != nil {
			t.Fatal(err)
		}
		texts[node] = string(text)
	}
	for short := range texts {
		var logs []io.Reader
		for node, text := range texts {
			if node == short {
				text = text[:len(text)/2]
			}
			logs = append(logs, strings.NewReader(text))
		}
		if _, err := protocoltrace.Check(logs, nil); err != nil {
			t.Errorf("with half of the log of node %d: %v", short, err)
		}
	}
}

// TestMerge_RefusesTracesOfTwoRunsOfAMachine: its clock begins again, and orders nothing.
func TestMerge_RefusesTracesOfTwoRunsOfAMachine(t *testing.T) {
	log := `{"k":"start","n":1,"process":1}` + "\n" + `{"k":"step","n":1,"process":1,"real":9000000000}` + "\n" + `{"k":"start","n":1,"process":2}` + "\n" + `{"k":"step","n":1,"process":2,"real":5}` + "\n"
	err := protocoltrace.Merge([]io.Reader{strings.NewReader(log), strings.NewReader("")}, func(spec.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "line 4: the machine was started again") {
		t.Error(err)
	}
	if err := protocoltrace.Merge([]io.Reader{strings.NewReader(log)}, func(spec.Event) error { return nil }); err != nil {
		t.Errorf("by itself: %v", err)
	}
}

// TestObserve_SaysTheFirstStepOfAConfiguration, whether anything happens in it or not: a sole voter begins to go by what its clock shows then.
func TestObserve_SaysTheFirstStepOfAConfiguration(t *testing.T) {
	said := 0
	r := sim.Run(sim.Options{Seed: 10, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		o := &firstSteps{t: t, said: &said}
		o.Observer = protocoltrace.Observe(cfg, func(e spec.Event) {
			o.due = o.due || e.Kind == spec.Restore || e.Kind == spec.Entry && e.Command.Change != nil
			o.step = o.step || e.Kind == spec.BeginStep
		})
		return o
	}})
	if r.Violation != nil || said < 10 {
		t.Errorf("%v, %d steps", r.Violation, said)
	}
}

// firstSteps checks that a step is said if it is due.
type firstSteps struct {
	replica.Observer
	t         *testing.T
	due, step bool
	said      *int
}

func (o *firstSteps) Before(in *replica.Input) {
	due := o.due
	o.due, o.step = false, false
	o.Observer.Before(in)
	if due && !o.step {
		o.t.Errorf("a step at %v is not said", in.Mono)
	}
	if due {
		*o.said++
	}
}
