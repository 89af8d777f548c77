package stats_test

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/front/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// burn works for so much time of the thread, as far as the section can tell.
func burn(until func() bool) {
	x := uint64(1)
	for !until() {
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(x)
}

func TestTimer_SleepIsStall(t *testing.T) {
	timer := stats.Start()
	time.Sleep(50 * time.Millisecond)
	s := timer.Stop()
	if s.Wall < 50*time.Millisecond {
		t.Errorf("wall is %v", s.Wall)
	}
	if s.Measured != (runtime.GOOS == "linux") {
		t.Fatalf("measured: %v", s.Measured)
	}
	if s.Measured && (s.Stall() < s.Wall*9/10 || s.CPU() > s.Wall/10) {
		t.Errorf("%+v, stall %v: want nearly all of it stall", s, s.Stall())
	}
}

// TestTimer_WorkIsCPU does not depend on how much of a processor it gets: in many tries on
// a loaded machine there is one in which the thread was not preempted for most of it.
func TestTimer_WorkIsCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU time is known on Linux only")
	}
	var last stats.Section
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		began := time.Now()
		timer := stats.Start()
		burn(func() bool { return time.Since(began) > 5*time.Millisecond })
		if last = timer.Stop(); last.CPU() > last.Wall*3/4 {
			return
		}
	}
	t.Errorf("of %v of work %v is CPU", last.Wall, last.CPU())
}

func TestTimer_CPUIsNeverMoreThanWall(t *testing.T) {
	for range 2000 {
		timer := stats.Start()
		s := timer.Stop()
		// The two clocks are not the same one, and may go at a slightly different rate.
		if s.CPU() > s.Wall+s.Wall/100+time.Microsecond || s.User < 0 || s.System < 0 || s.Stall() < 0 {
			t.Fatalf("%+v", s)
		}
		if s.Measured && s.Stall() != max(0, s.Wall-s.User-s.System) {
			t.Fatalf("%+v has stall %v", s, s.Stall())
		}
	}
}

func TestTimer_SystemCallsAreSystem(t *testing.T) {
	work := kernelWork(t)
	var sum stats.Section
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		timer := stats.Start()
		for range 200 {
			work()
		}
		s := timer.Stop()
		sum.User, sum.System = sum.User+s.User, sum.System+s.System
		if sum.System > 20*time.Millisecond && sum.System > sum.User/10 {
			return
		}
	}
	t.Errorf("of system calls, %v was user and %v system", sum.User, sum.System)
}

func TestTimer_WallOnlyIsNotMeasured(t *testing.T) {
	timer := stats.StartWall()
	time.Sleep(time.Millisecond)
	if s := timer.Stop(); s.Measured || s.Wall < time.Millisecond || s.CPU() != 0 || s.Stall() != 0 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkTimer(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		timer := stats.Start()
		_ = timer.Stop()
	}
}

// TestMeter_LapsAddUp: each lap is what was worked in it, and nothing is in two.
func TestMeter_LapsAddUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU time is known on Linux only")
	}
	var m stats.Meter
	began := time.Now()
	m.Start()
	defer m.Stop()
	var sum stats.Section
	for sum.CPU() < 20*time.Millisecond {
		lap := time.Now()
		burn(func() bool { return time.Since(lap) > 100*time.Microsecond })
		one := m.Lap()
		if !one.Measured || one.Wall != 0 || one.User < 0 || one.System < 0 {
			t.Fatalf("%+v", one)
		}
		sum = sum.Plus(one)
		if time.Since(began) > 20*time.Second {
			t.Fatalf("in %v of work there were %v", time.Since(began), sum.CPU())
		}
	}
	if wall := time.Since(began); sum.CPU() > wall+wall/100 {
		t.Errorf("%v of CPU in %v", sum.CPU(), wall)
	}
	if half := (stats.Section{Wall: 9, User: 4, System: 2, Measured: true}).Share(2); half != (stats.Section{User: 2, System: 1, Measured: true}) {
		t.Errorf("a half is %+v", half)
	}
}
