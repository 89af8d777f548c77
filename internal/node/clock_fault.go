package node

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/steady"
)

// ClockFault describes what is wrong with a [FaultClock]. The zero value is nothing.
type ClockFault struct {
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

// faultCheckInterval is how often a FaultClock looks at its file.
const faultCheckInterval = 20 * time.Millisecond

// FaultClock is a clock that a test sets wrong while the node runs: it follows a
// JSON file with a [ClockFault]. A file that is missing or half-written changes
// nothing.
type FaultClock struct {
	path     string
	mu       sync.Mutex // guards what follows
	checked  time.Duration
	fault    ClockFault
	since    time.Duration // real boot time when the rate last changed
	base     time.Duration // what Mono read then
	baseWall time.Time     // what Wall read then, without offset
	frozen   time.Time
	// The steady clock showed steadyBase when the machine's showed steadySince.
	steadySince, steadyBase int64
}

// NewFaultClock returns a clock that follows the file at path.
func NewFaultClock(path string) *FaultClock {
	b := bootTime()
	s := steady.Exact()
	return &FaultClock{path: path, since: b, base: b, baseWall: time.Now().Round(0), steadySince: s, steadyBase: s}
}

// Wall returns the time of day with the fault applied.
func (c *FaultClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	if c.fault.Freeze {
		return c.frozen
	}
	return c.wall(bootTime())
}

// Mono returns the boot time with the fault's rate applied.
func (c *FaultClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	return c.base + c.scaled(bootTime())
}

// Exact returns the steady clock with the fault's rate applied.
func (c *FaultClock) Exact() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	return c.steadyAt(steady.Exact())
}

// Steady returns bounds of the steady clock with the fault's rate applied.
func (c *FaultClock) Steady() interval.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check()
	now := steady.Now()
	return interval.Instant{Lo: c.steadyAt(now.Lo), Hi: c.steadyAt(now.Hi) + 1}
}

func (c *FaultClock) steadyAt(real int64) int64 {
	passed := real - c.steadySince
	return c.steadyBase + passed + passed*c.fault.SteadyPPM/1_000_000
}

func (c *FaultClock) wall(real time.Duration) time.Time {
	return c.baseWall.Add(c.scaled(real)).Add(time.Duration(c.fault.OffsetMS) * time.Millisecond)
}

func (c *FaultClock) scaled(real time.Duration) time.Duration {
	passed := real - c.since
	return passed + time.Duration(float64(passed)*float64(c.fault.RatePPM)/1e6)
}

func (c *FaultClock) check() {
	real := bootTime()
	if real-c.checked < faultCheckInterval {
		return
	}
	c.checked = real
	fault, err := readClockFault(c.path)
	if err != nil || fault == c.fault {
		return
	}
	if fault.Freeze && !c.fault.Freeze {
		c.frozen = c.wall(real)
	}
	passed := c.scaled(real)
	c.base, c.baseWall, c.since = c.base+passed, c.baseWall.Add(passed), real
	now := steady.Exact()
	c.steadyBase, c.steadySince = c.steadyAt(now), now
	c.fault = fault
}

func readClockFault(path string) (ClockFault, error) {
	var f ClockFault
	b, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("node: clock fault: %w", err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("node: clock fault in %s: %w", path, err)
	}
	return f, nil
}
