package faults_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/faults"
)

// machine is a clock that a test moves.
type machine struct{ passed time.Duration }

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *machine) Wall() time.Time          { return midnight.Add(m.passed) }
func (m *machine) Mono() time.Duration      { return time.Hour + m.passed }
func (m *machine) Exact() int64             { return int64(2*time.Hour + m.passed) }
func (m *machine) Steady() interval.Instant { return interval.At(m.Exact()) }

func TestClock_FollowsItsFile(t *testing.T) {
	file, m := filepath.Join(t.TempDir(), "clock"), new(machine)
	clock := faults.NewClock(file, m)
	// set changes the file, and lets the clock look at it.
	set := func(json string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(json), 0o600); err != nil {
			t.Fatal(err)
		}
		m.passed += time.Second
		clock.Wall()
	}
	// rates moves the machine's clock by ten seconds, and returns how far each of the others went.
	rates := func() (wall, mono, exact time.Duration) {
		w, o, e := clock.Wall(), clock.Mono(), clock.Exact()
		m.passed += 10 * time.Second
		return clock.Wall().Sub(w), clock.Mono() - o, time.Duration(clock.Exact() - e)
	}
	begun := clock.Wall()
	if wall, mono, exact := rates(); wall != 10*time.Second || mono != 10*time.Second || exact != 10*time.Second || clock.Mono() != m.Mono() {
		t.Errorf("without a file: %v, %v, %v", wall, mono, exact)
	}
	set(`{"offset_ms":-3600000}`)
	if got := clock.Wall().Sub(begun); got != 11*time.Second-time.Hour {
		t.Errorf("set back by an hour: %v", got)
	}
	set(`{"freeze":true}`)
	if wall, mono, exact := rates(); wall != 0 || mono != 10*time.Second || exact != 10*time.Second {
		t.Errorf("frozen: %v, %v, %v", wall, mono, exact)
	}
	before := clock.Mono()
	for _, c := range []struct {
		json              string
		wall, mono, exact time.Duration
	}{
		{`{"rate_ppm":9000000}`, 100 * time.Second, 100 * time.Second, 10 * time.Second},
		{`{"rate_ppm":-900000}`, time.Second, time.Second, 10 * time.Second},
		{`{"rate_ppm":-900`, time.Second, time.Second, 10 * time.Second}, // half-written
		{`{"steady_ppm":1000000}`, 10 * time.Second, 10 * time.Second, 20 * time.Second},
	} {
		set(c.json)
		if now := clock.Mono(); now < before {
			t.Errorf("%s: Mono went back", c.json)
		}
		if wall, mono, exact := rates(); wall.Round(time.Millisecond) != c.wall || mono.Round(time.Millisecond) != c.mono || exact != c.exact {
			t.Errorf("%s: %v, %v, %v", c.json, wall, mono, exact)
		}
		before = clock.Mono()
	}
	if i := clock.Steady(); clock.Exact() < i.Lo || clock.Exact() > i.Hi {
		t.Errorf("bounds of the steady clock: %v of %d", i, clock.Exact())
	}
}
