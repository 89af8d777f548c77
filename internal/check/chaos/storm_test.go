//go:build linux

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
)

const (
	// The lengths of a storm without CHAOS_MINUTES, and with -short.
	stormDefault = 40 * time.Second
	stormShort   = 12 * time.Second
	// stormRoundMax is after how long a new cluster replaces the old one.
	stormRoundMax = 8 * time.Minute
)

// TestChaos breaks real processes at random, under load in both read modes. There must be no
// wrong answer, no unexpected exit, and an answer soon after each storm. Every other cluster of a kind has a
// cluster clock, which callers read. The environment sets CHAOS_MINUTES, CHAOS_SEED, CHAOS_ONLY, a list of kinds of
// faults separated by commas, and CHAOS_INTERVALS=0 for no cluster clock.
func TestChaos(t *testing.T) {
	seed := stormSeed(t, "CHAOS_SEED")
	t.Logf("CHAOS_SEED=%d", seed)
	volumes := chaos.VolumesDenied() == ""
	worlds := []struct {
		name   string
		denied string
		opt    chaos.Options
	}{
		{"proxies", "", chaos.Options{Proxies: true, Volumes: volumes}},
		{"namespaces", chaos.NetworkDenied(), chaos.Options{Network: true, Volumes: volumes}},
	}
	total := stormTime(t, "CHAOS_MINUTES", stormDefault, stormShort)
	rounds := len(worlds) * int(1+(total-1)/(stormRoundMax*time.Duration(len(worlds))))
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
			o.Binary, o.FaultClock = binary, true
			// Often enough that the log is compacted now and then.
			o.Env = map[string]string{"EPOCH_INTERVAL_MS": []string{"100", "30"}[i/len(worlds)%2]}
			intervals := 0
			if os.Getenv("CHAOS_INTERVALS") != "0" && i/len(worlds)%2 == 0 {
				intervals, o.Env["INTERVAL_MS"] = 4, "100"
			}
			c := chaos.StartCluster(t, o)
			chaos.Unleash(t, c, chaos.StormOptions{
				Seed: seed + uint64(i), For: total / time.Duration(rounds), Only: stormOnly(), Tally: tally, Intervals: intervals,
			})
		})
	}
	t.Logf("all together, CHAOS_SEED=%d:\n%s", seed, all)
}

// stormTime reads how long a storm lasts. The default depends on -short.
func stormTime(t *testing.T, name string, normal, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		if testing.Short() {
			return short
		}
		return normal
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("%s=%q: want a number of minutes", name, text)
	}
	return time.Duration(minutes * float64(time.Minute))
}

func stormSeed(t *testing.T, name string) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return uint64(rand.Uint32())
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a seed, an unsigned number", name, text)
	}
	return seed
}

func stormOnly() []string {
	if text := os.Getenv("CHAOS_ONLY"); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}
