package stats

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Meter measures the CPU time of one thread in laps: for an event loop, which works for many
// requests in each turn. It belongs to one goroutine.
type Meter struct {
	cpu, system time.Duration // the thread's clocks at the start of the lap
	known       bool
}

// Start begins the first lap. The calling goroutine is locked to its thread until Stop.
func (m *Meter) Start() {
	runtime.LockOSThread()
	m.cpu, m.system, m.known = threadClocks()
}

// Stop ends the measurement.
func (m *Meter) Stop() { runtime.UnlockOSThread() }

// Lap ends a lap and begins the next. The section has no wall.
func (m *Meter) Lap() Section {
	cpu, system, known := threadClocks()
	var s Section
	if known && m.known {
		worked := max(0, cpu-m.cpu)
		s.System = min(worked, max(0, system-m.system))
		s.User = worked - s.System
		s.Measured = true
	}
	m.cpu, m.system, m.known = cpu, system, known
	return s
}

func threadClocks() (cpu, system time.Duration, known bool) {
	if cpu, known = threadCPU(); known { // updates threadSystem
		system, known = threadSystem()
	}
	return cpu, system, known
}

// Share returns the nth part of the section's CPU time.
func (s Section) Share(n int) Section {
	return Section{User: s.User / time.Duration(n), System: s.System / time.Duration(n), Measured: s.Measured}
}

// Plus adds the CPU time of another section on the same request. Wall stays, unless the CPU
// time exceeds it.
func (s Section) Plus(other Section) Section {
	s.User += other.User
	s.System += other.System
	s.Measured = s.Measured || other.Measured
	s.Wall = max(s.Wall, s.CPU())
	return s
}

// Threads bounds the concurrent sections, each of which holds a thread. The zero value allows
// 1024. It is safe for concurrent use.
type Threads struct {
	max int64
	n   atomic.Int64
}

// Start begins a section like [Start], or like [StartWall] beyond the limit. The caller calls
// release after it has stopped the timer.
func (t *Threads) Start() (timer Timer, release func()) {
	most := t.max
	if most <= 0 {
		most = threadsMaxDefault
	}
	if t.n.Add(1) > most {
		t.n.Add(-1)
		return StartWall(), func() {}
	}
	return Start(), func() { t.n.Add(-1) }
}
