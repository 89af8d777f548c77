package steady_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// machine has all the clocks of a machine, driven by a test. Every reading takes some time, and may be
// interrupted, also by a suspend.
type machine struct {
	t        *rapid.T
	raw      float64 // running time
	mono     float64
	sleep    int64 // in suspend
	wall     int64 // wall clock less mono
	slew     float64
	calm     bool // nothing happens but the time that a reading takes
	readings int
}

// truth is what the steady clock shows.
func (m *machine) truth() int64 { return int64(m.raw) + m.sleep }

func (m *machine) run(d float64) {
	m.raw += d
	m.mono += d * m.slew
}

func (m *machine) suspend(d int64) {
	m.sleep += d
	m.wall += d
}

// pass lets time pass before a reading.
func (m *machine) pass() {
	m.readings++
	m.run(float64(rapid.IntRange(20, 300).Draw(m.t, "takes")))
	if m.calm {
		return
	}
	switch rapid.IntRange(0, 30).Draw(m.t, "event") {
	case 1:
		m.run(rapid.Float64Range(0, 1e7).Draw(m.t, "interrupted"))
	case 2:
		m.suspend(rapid.Int64Range(0, 5000).Draw(m.t, "short suspend"))
	case 3:
		m.suspend(rapid.Int64Range(0, 1e13).Draw(m.t, "suspend"))
	}
}

func (m *machine) sources() steady.Sources {
	mono := func() int64 { return int64(m.mono) }
	return steady.Sources{
		Raw:  func() int64 { m.pass(); return int64(m.raw) },
		Mono: func() int64 { m.pass(); return mono() },
		Boot: func() int64 { m.pass(); return mono() + m.sleep },
		Go: func() (int64, int64) {
			m.pass()
			wall := mono() + m.wall
			m.pass()
			return wall, mono()
		},
	}
}

func newMachine(t *rapid.T) *machine {
	return &machine{t: t, slew: 1, raw: rapid.Float64Range(0, 1e12).Draw(t, "raw"), mono: rapid.Float64Range(0, 1e12).Draw(t, "mono"),
		sleep: rapid.Int64Range(-1e12, 1e12).Draw(t, "sleep"), wall: rapid.Int64Range(0, 1e18).Draw(t, "wall")}
}

// TestNow_ContainsTheTruth at some instant of the call, and never goes back, whatever NTP, suspends,
// interruptions and the wall clock do.
func TestNow_ContainsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		clock := steady.New(m.sources())
		last := int64(math.MinInt64)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			begin := m.truth()
			now := clock.Now()
			end := m.truth()
			// A float64 has errors of a nanosecond at these numbers.
			if now.Lo > now.Hi || now.Lo > end+2 || now.Hi < begin-2 {
				t.Fatalf("%+v: between %d and %d", now, begin, end)
			}
			if now.Lo < last {
				t.Fatalf("%d after %d", now.Lo, last)
			}
			last = now.Lo
			switch rapid.IntRange(0, 10).Draw(t, "between the calls") {
			case 1:
				m.slew = rapid.Float64Range(0.9, 1.1).Draw(t, "slew")
			case 2:
				m.wall += rapid.Int64Range(-1e18, -1e14).Draw(t, "wall clock back") // more than any suspend
			case 3:
				m.wall += rapid.Int64Range(0, 1e18).Draw(t, "wall clock ahead")
			case 4:
				m.suspend(rapid.Int64Range(0, 1e10).Draw(t, "suspend"))
			case 5:
				m.run(rapid.Float64Range(0, 1e9).Draw(t, "pause"))
			default:
				m.run(rapid.Float64Range(0, 5e4).Draw(t, "running"))
			}
		}
	})
}

// TestNow_AllowsForAnInterruptionWhileSlewed, at the worst moment: between the readings of Boot and Mono.
func TestNow_AllowsForAnInterruptionWhileSlewed(t *testing.T) {
	var truth, mono float64
	run := func(d float64) { truth += d; mono += 1.1 * d }
	clock := steady.New(steady.Sources{
		Boot: func() int64 { boot := int64(mono); run(1e7); return boot },
		Mono: func() int64 { return int64(mono) },
		Raw:  func() int64 { return int64(truth) },
		Go:   func() (int64, int64) { run(10); return int64(mono), int64(mono) },
	})
	run(1e9)
	begin := int64(truth)
	if now := clock.Now(); now.Hi < begin || now.Lo > int64(truth) {
		t.Errorf("%+v: between %d and %d", now, begin, int64(truth))
	}
}

// TestExact_ReadsAnInstantOfTheCall, also if it is suspended in between. While NTP slews the clocks, an
// interruption makes it inexact by an eighth of what it lasted, unless it reads again.
func TestExact_ReadsAnInstantOfTheCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		clock := steady.New(m.sources())
		for range 20 {
			begin := m.truth()
			got := clock.Exact()
			if end := m.truth(); got > end+2 || got < begin-2 {
				t.Fatalf("%d: between %d and %d", got, begin, end)
			}
			m.run(rapid.Float64Range(0, 1e9).Draw(t, "pause"))
		}
		m.calm = true
		m.slew = rapid.Float64Range(0.9, 1.1).Draw(t, "slew")
		begin := m.truth()
		if got := clock.Exact(); got < begin || got > m.truth() {
			t.Fatalf("slewed: %d: between %d and %d", got, begin, m.truth())
		}
	})
}

// TestExact_ReadsAgainAfterAnInterruption.
func TestExact_ReadsAgainAfterAnInterruption(t *testing.T) {
	raw, readings := int64(0), 0
	still := func() int64 { return 0 }
	clock := steady.New(steady.Sources{Boot: still, Mono: still, Raw: func() int64 {
		if readings++; readings == 2 {
			raw += 1e9
		}
		raw += 100
		return raw
	}})
	if got := clock.Exact(); readings != 4 || got != 1e9+400 {
		t.Errorf("%d, after %d readings", got, readings)
	}
}

// TestNow_IsNarrowAndCheapInBetween: at most one exact reading in 100 µs.
func TestNow_IsNarrowAndCheapInBetween(t *testing.T) {
	var raw, exact int64
	count := func() int64 { exact++; return raw }
	clock := steady.New(steady.Sources{
		Raw: count, Mono: func() int64 { return raw }, Boot: func() int64 { return raw },
		Go: func() (int64, int64) { return 1e18 + raw, raw },
	})
	for range 100_000 { // 10 ms
		raw += 100
		if now := clock.Now(); now.Hi-now.Lo > 27_100 || now.Lo > raw || now.Hi < raw {
			t.Fatalf("%+v at %d", now, raw)
		}
	}
	if exact < 99 || exact > 101 {
		t.Errorf("%d exact readings in 10 ms", exact)
	}
}

// TestNow_TheProcessesClockRuns with the time of package time, on all goroutines.
func TestNow_TheProcessesClockRuns(t *testing.T) {
	begin, first := time.Now(), steady.Exact()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var last interval.Instant
			for range 20_000 {
				before := steady.Exact()
				now := steady.Now()
				after := steady.Exact()
				if now.Lo < last.Lo || now.Lo > after || now.Hi < before {
					t.Errorf("%+v after %+v, between %d and %d", now, last, before, after)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
	passed, took := time.Duration(steady.Exact()-first), time.Since(begin)
	if ratio := float64(passed) / float64(took); ratio < 0.85 || ratio > 1.15 {
		t.Errorf("%v passed in %v", passed, took)
	}
}

func TestSleep_LastsAtLeastThatLong(t *testing.T) {
	steady.Sleep(-1)
	for range 10 {
		begin := time.Now()
		steady.Sleep(200 * time.Microsecond)
		if took := time.Since(begin); took < 180*time.Microsecond { // the clocks differ by 10 % at most
			t.Errorf("%v", took)
		}
	}
}

func TestNow_AllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(10_000, func() { steady.Now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		steady.Now()
	}
}

func BenchmarkNow_Parallel(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			steady.Now()
		}
	})
}

func BenchmarkExact(b *testing.B) {
	for b.Loop() {
		steady.Exact()
	}
}
