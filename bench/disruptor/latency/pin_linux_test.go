package main

import (
	"testing"
	"time"
)

// TestCourse_PinsBothSides looks at the CPUs of a goroutine that receives, and of one that is pinned as the sender.
func TestCourse_PinsBothSides(t *testing.T) {
	all, err := cpus()
	if err != nil {
		t.Fatal(err)
	}
	affinity := func(do func(*course)) (list []int) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := &course{start: time.Now(), cpus: all, latencies: make([]time.Duration, 1)}
			if do(c); c.pinErr != nil {
				t.Error(c.pinErr)
			}
			list, err = cpus()
		}()
		<-done
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	sender := affinity(func(c *course) { c.pinErr = c.pin(0) })
	receiver := affinity(func(c *course) { c.receive(0) })
	if len(sender) != 1 || sender[0] != all[0] || len(receiver) != 1 || receiver[0] != all[1%len(all)] {
		t.Errorf("sender on %v, receiver on %v of %v", sender, receiver, all)
	}
	if now, err := cpus(); err != nil || len(now) != len(all) {
		t.Errorf("%v of %v are left for others, %v", now, all, err)
	}
}
