package stats

import (
	"runtime"
	"time"
)

// Section is the cost of a section of work.
type Section struct {
	Wall time.Duration
	// User and System are the CPU time in the program and in the kernel; 0 unless Measured.
	User, System time.Duration
	// Measured says that User and System are known.
	Measured bool
}

// CPU returns User and System together.
func (s Section) CPU() time.Duration { return s.User + s.System }

// Stall returns Wall without CPU, or 0 if the CPU time is not known.
func (s Section) Stall() time.Duration {
	if !s.Measured {
		return 0
	}
	return max(0, s.Wall-s.CPU())
}

// Timer measures one section. The goroutine that started it stops it, once.
type Timer struct {
	began       time.Time
	cpu, system time.Duration // the thread's clocks at the start
	locked      bool
}

// Start begins a section of the calling goroutine, which is locked to its thread until Stop.
// The work of other goroutines is not measured; waiting for them is stall.
func Start() Timer {
	runtime.LockOSThread()
	t := Timer{locked: true}
	_, known := threadCPU() // updates threadSystem
	if known {
		t.system, known = threadSystem()
	}
	t.began = time.Now()
	if known {
		t.cpu, known = threadCPU() // read inside wall at both ends, so CPU never exceeds it
	}
	if !known {
		runtime.UnlockOSThread()
		t.locked = false
	}
	return t
}

// StartWall begins a section whose CPU time is not measured.
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
