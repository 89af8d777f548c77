//go:build linux

package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/spec"
)

// stormDefault is the length of a storm without CHAOS_MINUTES.
const stormDefault = 12 * time.Second

// TestChaos breaks real processes at random, under load in both read modes. There must be no
// wrong answer, no unexpected exit, and an answer soon after each storm. Every other cluster of a kind has a
// cluster clock, which callers read. The environment sets CHAOS_MINUTES, CHAOS_SEED, CHAOS_ONLY, a list of kinds of
// faults separated by commas, and CHAOS_INTERVALS=0 for no cluster clock.
func TestChaos(t *testing.T) {
	seed := trial.Seed(t, "CHAOS_SEED")
	t.Logf("CHAOS_SEED=%d", seed)
	volumes := chaos.VolumesDenied() == ""
	worlds := []struct {
		name   string
		denied string
		opt    chaos.Options
	}{
		{"proxies", "", chaos.Options{Proxies: true, Volumes: volumes}},
		{"namespaces", namespace.NetworkDenied(), chaos.Options{Network: true, Volumes: volumes}},
	}
	total := trial.Length(t, "CHAOS_MINUTES", stormDefault)
	rounds := len(worlds) * int(1+(total-1)/(trial.RoundMax*time.Duration(len(worlds))))
	all := chaos.NewTally()
	for i := range rounds {
		w := worlds[i%len(worlds)]
		t.Run(fmt.Sprintf("%d %s", i+1, w.name), func(t *testing.T) {
			if w.denied != "" {
				t.Skip(w.denied)
			}
			tally := chaos.NewTally()
			defer func() {
				t.Log(tally)
				all.Merge(tally)
			}()
			o := w.opt
			o.Binary, o.FaultClock, o.Trace = trial.Binary, true, true
			// Often enough that the log is compacted now and then.
			o.Env = map[string]string{"EPOCH_INTERVAL_MS": []string{"100", "30"}[i/len(worlds)%2]}
			if i/len(worlds)%2 == 0 {
				o.Env["TIMELINES"] = "1"
			}
			intervals := 0
			if os.Getenv("CHAOS_INTERVALS") != "0" && i/len(worlds)%2 == 0 {
				intervals, o.Env["INTERVAL_MS"] = 4, "100"
			}
			c := chaos.StartCluster(t, o)
			chaos.Unleash(t, c, chaos.StormOptions{
				Seed: seed + uint64(i), For: total / time.Duration(rounds), Only: stormOnly(), Tally: tally, Intervals: intervals,
			})
			tally.AddEvents(checkTraces(t, c))
		})
	}
	t.Logf("all together, CHAOS_SEED=%d:\n%s", seed, all)
	s := all.Storm()
	s.Command, s.Settings = "make chaos", fmt.Sprintf("seed %d", seed)
	trial.Record(t, s)
}

// checkTraces kills all nodes, checks their protocol traces against the specification, and returns the number of events.
func checkTraces(t *testing.T, c *chaos.Cluster) uint64 {
	t.Helper()
	c.Kill()
	var traces []io.Reader
	for _, n := range c.Nodes {
		f, err := os.Open(n.TracePath())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		traces = append(traces, f)
	}
	events, err := protocoltrace.Check(traces, nil)
	if v := new(spec.Violation); errors.As(err, &v) {
		t.Errorf("the specification does not permit what the nodes did: %v", v)
	} else if err != nil {
		t.Errorf("the traces of the nodes: %v", err)
	}
	return events
}

func stormOnly() []string {
	if text := os.Getenv("CHAOS_ONLY"); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}
