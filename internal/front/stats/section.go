package stats

import (
	"runtime"
	"time"
)

// Section is what a stretch of work has cost.
type Section struct {
	Wall time.Duration
	// User and System are the time that a processor worked, for the program and for the
	// kernel on its behalf; 0 unless Measured.
	User, System time.Duration
	// Measured says that User and System are known.
	Measured bool
}

// CPU returns the time that a processor worked.
func (s Section) CPU() time.Duration { return s.User + s.System }

// Stall returns the time in which none did. It is 0 if that is not known.
func (s Section) Stall() time.Duration {
	if !s.Measured {
		return 0
	}
	return max(0, s.Wall-s.CPU())
}

// Timer measures one section. It belongs to the goroutine that has started it, and is
// stopped once, by the same.
type Timer struct {
	began       time.Time
	cpu, system time.Duration // where the thread's clocks stood
	locked      bool
}

// Start begins a section of the calling goroutine, which stays on its thread until Stop.
// What it has other goroutines do is not measured, but that it waits for them is.
func Start() Timer {
	runtime.LockOSThread()
	t := Timer{locked: true}
	_, known := threadCPU() // brings the next up to date
	if known {
		t.system, known = threadSystem()
	}
	t.began = time.Now()
	if known {
		t.cpu, known = threadCPU() // within wall, at both ends: CPU is never more
	}
	if !known {
		runtime.UnlockOSThread()
		t.locked = false
	}
	return t
}

// StartWall begins a section of which only wall is measured.
func StartWall() Timer { return Timer{began: time.Now()} }

// Stop ends the section.
func (t *Timer) Stop() Section {
	if !t.locked {
		return Section{Wall: time.Since(t.began)}
	}
	cpu, known := threadCPU()
	s := Section{Wall: time.Since(t.began)}
	system, also := threadSystem()
	runtime.UnlockOSThread()
	t.locked = false
	if known && also {
		cpu = max(0, cpu-t.cpu)
		s.System = min(cpu, max(0, system-t.system))
		s.User = cpu - s.System
		s.Measured = true
	}
	return s
}
