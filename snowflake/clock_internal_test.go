package snowflake

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The fast path is never ahead of the wall clock, and rarely behind: only when a thread
// was preempted between its readings of the two clocks.
func TestClock_IsTheWallClock(t *testing.T) {
	var c clock
	c.init(nil)
	const readings = 200_000
	short, behind := 0, 0
	for range readings {
		before := time.Now().UnixMilli()
		if int64(time.Since(c.base)) < c.until.Load() {
			short++
		}
		got := c.now()
		if after := time.Now().UnixMilli(); got > after {
			t.Fatalf("%d, and then the wall clock is at %d", got, after)
		}
		if got < before {
			behind++
		}
	}
	if short < readings/2 {
		t.Errorf("the fast path was taken %d times of %d", short, readings)
	}
	if behind > readings/100 {
		t.Errorf("behind %d times of %d", behind, readings)
	}
}

func TestClock_SeesAStepWithinAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(nil)
		c.now()
		// As if the wall clock had been set back by an hour since.
		c.distance.Add(int64(time.Hour))
		now := time.Now()
		if got, want := c.now(), now.Add(time.Hour).UnixMilli(); got != want {
			t.Errorf("%d, want %d with the old distance", got, want)
		}
		if got, want := c.exact(), now.UnixMilli(); got != want {
			t.Errorf("exactly %d, want %d", got, want)
		}
		time.Sleep(anchorMax)
		if got, want := c.now(), time.Now().UnixMilli(); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	})
}

func TestClock_IsForManyGoroutines(t *testing.T) {
	var c clock
	c.init(nil)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20_000 {
				if got := c.now(); got > time.Now().UnixMilli() {
					t.Error("ahead of the wall clock")
					return
				}
			}
		})
	}
	group.Wait()
}
