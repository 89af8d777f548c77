package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/core/interval"
)

// ClockSetting is what the file of a [Clock] says. The zero value is a clock without faults.
type ClockSetting struct {
	// OffsetMS is added to the time of day, in milliseconds.
	OffsetMS int64 `json:"offset_ms"`
	// RatePPM makes both clocks run faster (or slower, if negative) by that many
	// parts per million.
	RatePPM int64 `json:"rate_ppm"`
	// Freeze stops the time of day.
	Freeze bool `json:"freeze"`
	// SteadyPPM makes the steady clock run faster or slower. Intervals are right up to
	// interval.RateError, apart from what the machine's clock is wrong by.
	SteadyPPM int64 `json:"steady_ppm"`
}

// checkInterval is how often a Clock looks at its file.
const checkInterval = 20 * time.Millisecond

// Source is a clock; see node.Clock.
type Source interface {
	Wall() time.Time
	Mono() time.Duration
	Exact() int64
	Steady() interval.Instant
}

// Clock is a clock that a test sets wrong while the node runs: it follows a JSON file with a
// [ClockSetting]. A file that is missing or half-written changes nothing. It is safe for concurrent use.
type Clock struct {
	path     string
	real     Source
	mu       sync.Mutex // guards what follows
	checked  time.Duration
	fault    ClockSetting
	since    time.Duration // real boot time when the rate last changed
	base     time.Duration // what Mono read then
	baseWall time.Time     // what Wall read then, without offset
	frozen   time.Time
	// The steady clock showed steadyBase when the machine's showed steadySince.
	steadySince, steadyBase int64
}

// NewClock returns a clock that shows what the real one does, but for the faults in the file at path.
func NewClock(path string, real Source) *Clock {
	b := real.Mono()
	s := real.Exact()
	return &Clock{path: path, real: real, since: b, base: b, baseWall: time.Now().Round(0), steadySince: s, steadyBase: s}
}

// Wall returns the time of day with the fault applied.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	if c.fault.Freeze {
		return c.frozen
	}
	return c.wall(c.real.Mono())
}

// Mono returns the boot time with the fault's rate applied.
func (c *Clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	return c.base + c.scaled(c.real.Mono())
}

// Exact returns the steady clock with the fault's rate applied.
func (c *Clock) Exact() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	return c.steadyAt(c.real.Exact())
}

// Steady returns bounds of the steady clock with the fault's rate applied.
func (c *Clock) Steady() interval.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	now := c.real.Steady()
	return interval.Instant{Lo: c.steadyAt(now.Lo), Hi: c.steadyAt(now.Hi) + 1}
}

func (c *Clock) steadyAt(real int64) int64 {
	passed := real - c.steadySince
	return c.steadyBase + passed + passed*c.fault.SteadyPPM/1_000_000
}

func (c *Clock) wall(real time.Duration) time.Time {
	return c.baseWall.Add(c.scaled(real)).Add(time.Duration(c.fault.OffsetMS) * time.Millisecond)
}

func (c *Clock) scaled(real time.Duration) time.Duration {
	passed := real - c.since
	return passed + time.Duration(float64(passed)*float64(c.fault.RatePPM)/1e6)
}

func (c *Clock) check() {
	real := c.real.Mono()
	if real-c.checked < checkInterval {
		return
	}
	c.checked = real
	fault, err := readSetting(c.path)
	if err != nil || fault == c.fault {
		return
	}
	if fault.Freeze && !c.fault.Freeze {
		c.frozen = c.wall(real)
	}
	passed := c.scaled(real)
	c.base, c.baseWall, c.since = c.base+passed, c.baseWall.Add(passed), real
	now := c.real.Exact()
	c.steadyBase, c.steadySince = c.steadyAt(now), now
	c.fault = fault
}

func readSetting(path string) (ClockSetting, error) {
	var f ClockSetting
	b, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("faults: clock: %w", err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("faults: clock in %s: %w", path, err)
	}
	return f, nil
}
