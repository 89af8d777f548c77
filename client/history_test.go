package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// TestHistory_IsLinearizable makes calls from many goroutines during all faults that the fake
// cluster has, and checks every answer. It would detect a call that joined a request sent
// before it began, because the delays are between the allocation and the answer.
func TestHistory_IsLinearizable(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	f.delayAnswers()
	ctx, stop := context.WithCancel(context.Background())
	var mu sync.Mutex
	var history []lincheck.Operation
	var clock atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			var mine []lincheck.Operation
			for ctx.Err() == nil {
				mine = append(mine, operation(t, c.In(isotone.ReadDefault), &clock, uint64(i)))
			}
			mu.Lock()
			defer mu.Unlock()
			history = append(history, mine...)
		})
	}
	for round := range 12 {
		time.Sleep(30 * time.Millisecond)
		n := f.nodes[round%3]
		switch round % 4 {
		case 0:
			f.lead((round + 1) % 3)
		case 1:
			n.hangUp(false)
		case 2:
			n.freeze()
			f.lead((round + 1) % 3)
			time.Sleep(60 * time.Millisecond)
			n.thaw()
		case 3:
			n.stop()
			f.lead((round + 2) % 3)
			n.start()
		}
	}
	stop()
	wg.Wait()
	answered := 0
	for _, op := range history {
		if op.Answered {
			answered++
		}
	}
	t.Logf("%d calls, %d answered", len(history), answered)
	if answered < 500 || answered < len(history)*9/10 {
		t.Errorf("%d calls, %d answered", len(history), answered)
	}
	if err := lincheck.Check(history); err != nil {
		t.Error(err)
	}
}

// delayAnswers has a third of the timestamps reach the client some time after they were allocated.
func (c *cluster) delayAnswers() {
	for _, n := range c.nodes {
		n.replies(func(args []string) ([]byte, bool) {
			if args[0] != "TS" || rand.N(3) > 0 {
				return nil, false
			}
			answer := c.answer(n.index, args)
			time.Sleep(rand.N(2 * time.Millisecond))
			return answer, true
		})
	}
}

// operation makes one call. Some have so little time that they leave their batch.
func operation(t *testing.T, c client.Reader, clock *atomic.Int64, id uint64) lincheck.Operation {
	timeout := 10 * time.Second
	if rand.N(50) == 0 {
		timeout = rand.N(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	op := lincheck.Operation{Client: id, Invocation: clock.Add(1)}
	r, err := c.Timestamps(ctx, 1+rand.Uint64N(5))
	op.Completion = clock.Add(1)
	if err != nil {
		if timeout > time.Second || !errors.Is(err, isotone.ErrDeadlineExceeded) {
			t.Errorf("a call with %v: %v", timeout, err)
		}
		return op
	}
	op.Range, op.Answered = r, true
	return op
}

// TestHistory_OfTimelinesIsLinearizable: each by itself, while owners change, end, hang up and freeze, and so does the leader.
func TestHistory_OfTimelinesIsLinearizable(t *testing.T) {
	f := startCluster(t, 3)
	names := []string{"a", "b", "c", "d"}
	f.create(0, names...)
	c := f.dial(client.Options{})
	f.delayAnswers()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var clock atomic.Int64
	var wg sync.WaitGroup
	histories := make([][]lincheck.Operation, 4*len(names))
	var answered [4]atomic.Int64
	for i := range histories {
		line := i % len(names)
		wg.Go(func() {
			for ctx.Err() == nil {
				op := operation(t, c.Timeline(names[line]), &clock, uint64(i))
				if histories[i] = append(histories[i], op); op.Answered {
					answered[line].Add(1)
				}
			}
		})
	}
	goOn := func() {
		for i := range answered {
			from := answered[i].Load()
			await.Until(t, "timeline "+names[i]+" goes on", func() bool { return answered[i].Load() > from+20 || t.Failed() })
		}
	}
	for round := range 12 {
		n, heir := f.nodes[round%3], (round+1)%3
		f.grant(rand.N(3), names[round%4])
		f.lead(round%4 - 1)
		switch round % 4 {
		case 0:
			goOn()
		case 1:
			n.hangUp(false)
			goOn()
		case 2:
			n.freeze()
			f.grant(heir, names...)
			goOn()
			n.thaw()
		case 3:
			n.stop()
			f.grant(heir, names...)
			goOn()
			n.start()
		}
	}
	stop()
	wg.Wait()
	for line, name := range names {
		var history []lincheck.Operation
		for i := line; i < len(histories); i += len(names) {
			history = append(history, histories[i]...)
		}
		if err := lincheck.Check(history); err != nil {
			t.Errorf("timeline %s: %v", name, err)
		}
	}
}
