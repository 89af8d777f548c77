package stats

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Meter measures what one thread works, in laps: for an event loop, which works for many
// requests in each of its turns. It belongs to one goroutine.
type Meter struct {
	cpu, system time.Duration // where the thread's clocks stood
	known       bool
}

// Start begins the first lap. The calling goroutine stays on its thread until Stop.
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
	if cpu, known = threadCPU(); known { // brings the other up to date
		system, known = threadSystem()
	}
	return cpu, system, known
}

// Share returns the nth part of what the section has worked.
func (s Section) Share(n int) Section {
	return Section{User: s.User / time.Duration(n), System: s.System / time.Duration(n), Measured: s.Measured}
}

// Plus returns the section with what another has worked on the same request. Wall is
// the section's own, or as long as was worked.
func (s Section) Plus(other Section) Section {
	s.User += other.User
	s.System += other.System
	s.Measured = s.Measured || other.Measured
	s.Wall = max(s.Wall, s.CPU())
	return s
}

// Threads bounds the sections at a time that hold a thread each. The zero value allows
// 1024. It is safe for concurrent use.
type Threads struct {
	max int64
	n   atomic.Int64
}

// Start begins a section as [Start] does, or one of which only wall is measured, if there
// are too many. Release is to be called when it has been stopped.
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
