package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

const (
	// stormClientName is that of the one client of a driver.
	stormClientName = "storm"
	// stormGrace is how much later than its deadline the end of a call may reach the kit.
	stormGrace = 30 * time.Second
	// stormFaultsMax bounds the faults of a client that are kept.
	stormFaultsMax = 8
	// stormRound is after how many calls of a caller an ID is next, and in the middle of which stormRange timestamps.
	stormRound = 16
	stormRange = 10
)

// StormClient is what a client saw of a storm.
type StormClient struct {
	Client  string
	Calls   uint64 // that have ended, for whatever
	IDs     uint64 // that were received
	Failed  uint64
	Wrong   uint64 // answers that were out of order, or that anybody had before
	Slowest time.Duration
	During  string   // the event after which the slowest call ended
	Faults  []string // the first ones
}

// stormJudge judges the answers to all clients of a storm together: the kit writes each command after it has read the
// answers that precede it, whichever client these were for.
type stormJudge struct {
	event  atomic.Pointer[string] // the last one
	online *lincheck.Online

	mu  sync.Mutex
	ids map[uint64]bool
}

func newStormJudge() *stormJudge {
	j := &stormJudge{online: lincheck.NewOnline(0), ids: map[uint64]bool{}}
	j.event.Store(new("the beginning"))
	return j
}

// answer judges the answer to a call; floor is that of the call.
func (j *stormJudge) answer(floor isotone.Timestamp, r *Result) error {
	if len(r.IDs) > 0 {
		return j.id(r.IDs[0])
	}
	first, err := isotone.ParseTimestamp(r.First)
	if err != nil {
		return err
	}
	return j.online.End(floor, isotone.Range{First: first, Count: r.Count})
}

func (j *stormJudge) id(text string) error {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ids[id] {
		return fmt.Errorf("the ID %d a second time", id)
	}
	j.ids[id] = true
	return nil
}

// stormClient is a client under test.
type stormClient struct {
	*driver
	judge           *stormJudge
	deadline, pause time.Duration
	calls           atomic.Uint64 // as in the tally

	mu    sync.Mutex
	waits map[int]chan<- Reply // for the answers to commands
	tally StormClient
}

func newStormClient(d *driver, judge *stormJudge, deadline, pause time.Duration) *stormClient {
	c := &stormClient{driver: d, judge: judge, deadline: deadline, pause: pause, waits: map[int]chan<- Reply{}}
	c.tally.Client = d.hello.Client
	d.serve(c.receive)
	return c
}

// receive takes what the driver writes.
func (c *stormClient) receive(r Reply) {
	if r.Event == "rejected" {
		c.fault(&c.tally.Wrong, "%s answered what the client rejects: %s", r.Addr, r.Error)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.waits[r.ID]; wait != nil {
		delete(c.waits, r.ID)
		wait <- r
	}
}

// do has the driver carry out a command.
func (c *stormClient) do(command Command, limit time.Duration) Reply {
	answer := make(chan Reply, 1)
	command.ID = c.reserve()
	c.mu.Lock()
	c.waits[command.ID] = answer
	c.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	c.write(command)
	select {
	case r := <-answer:
		return r
	case <-c.ended:
		return Reply{Error: "internal", Message: fmt.Sprintf("%v: %s", c.why, c.complain)}
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, command.ID)
		return Reply{Error: "internal", Message: fmt.Sprintf("the driver has not answered after %v", limit)}
	}
}

// call is a caller: it calls until done is closed.
func (c *stormClient) call(done <-chan struct{}) {
	ten := uint64(stormRange)
	for i := 1; ; i++ {
		switch i % stormRound {
		case 0:
			c.one(Command{Method: "id"})
		case stormRound / 2:
			c.one(Command{Method: "timestamps", Count: &ten})
		default:
			c.one(Command{Method: "timestamp"})
		}
		select {
		case <-done:
			return
		case <-c.ended:
			return
		case <-time.After(c.pause):
		}
	}
}

// one makes one call, and judges its answer.
func (c *stormClient) one(command Command) {
	command.Do, command.Client, command.DeadlineMS = "call", stormClientName, c.deadline.Milliseconds()
	floor, began := c.judge.online.Begin(), time.Now()
	r := c.do(command, c.deadline+stormGrace)
	c.count(time.Since(began), r)
	if r.OK == nil {
		c.fault(&c.tally.Failed, "%s: %s: %s", command.Method, r.Error, r.Message)
	} else if err := c.judge.answer(floor, r.OK); err != nil {
		c.fault(&c.tally.Wrong, "%s: %v", command.Method, err)
	}
}

// count counts a call that has ended.
func (c *stormClient) count(took time.Duration, r Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Calls = c.calls.Add(1)
	if r.OK != nil {
		c.tally.IDs += uint64(len(r.OK.IDs))
	}
	if took > c.tally.Slowest {
		c.tally.Slowest, c.tally.During = took, *c.judge.event.Load()
	}
}

// fault counts a fault, with what happened.
func (c *stormClient) fault(count *uint64, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *count++; len(c.tally.Faults) < stormFaultsMax {
		c.tally.Faults = append(c.tally.Faults, fmt.Sprintf("after %s: %.400s", *c.judge.event.Load(), fmt.Sprintf(format, args...)))
	}
}

// more waits until so many more calls have ended.
func (c *stormClient) more(ctx context.Context, count uint64) error {
	want := c.calls.Load() + count
	return poll(ctx, fmt.Sprintf("%s: %d more calls have not ended", c.tally.Client, count), func() (bool, error) {
		select {
		case <-c.ended:
			return false, fmt.Errorf("%s: %w: %s", c.tally.Client, c.why, c.complain)
		default:
			return c.calls.Load() >= want, nil
		}
	})
}
