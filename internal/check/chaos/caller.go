//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// caller sends one request after the other.
type caller struct {
	load  *Load
	id    int
	addr  string // the node that it asks
	conns conns

	mu        sync.Mutex
	history   []lincheck.Operation
	truncated bool
}

// run calls once until the load ends. It backs off if that reports a failure.
func (c *caller) run(once func() bool) {
	defer c.conns.close()
	for !c.load.stopped() {
		wait := c.load.opt.Pause
		if !once() {
			wait = jitter()
		}
		select {
		case <-c.load.quit:
		case <-time.After(wait):
		}
	}
}

// request sends one request and reports whether the next one may follow without
// backing off.
func (c *caller) request() bool {
	conn, err := c.conns.to(c.addr, c.timeout())
	if err != nil {
		c.load.count(outcomeOf(err))
		c.next()
		return false
	}
	floor := c.load.online.Begin()
	op := lincheck.Operation{Client: uint64(c.id), Invocation: int64(c.load.now())}
	answer, err := c.conns.ask(conn, c.target(), c.timeout())
	op.Completion = int64(c.load.now())
	if err != nil {
		c.record(op)
		c.load.count(outcomeOf(err))
		c.next()
		return false
	}
	if answer.Status == 200 {
		c.succeeded(floor, op, answer)
		return true
	}
	c.record(op)
	return c.failed(answer)
}

func (c *caller) succeeded(floor isotone.Timestamp, op lincheck.Operation, answer *Answer) {
	var err error
	if op.Range, err = answer.Range(); err != nil {
		c.load.fault("%s answered 200 with %v", c.addr, err)
		return
	}
	op.Answered = true
	c.record(op)
	if err := c.load.online.End(floor, op.Range); err != nil {
		c.load.fault("%s: %v", c.addr, err)
	}
	c.load.succeeded(c.addr, c.query(), time.Duration(op.Invocation), time.Duration(op.Completion))
}

// failed handles an error answer and reports whether to go on at once.
func (c *caller) failed(answer *Answer) bool {
	code := answer.Code()
	switch {
	case answer.Status == 409 && code == isotone.CodeNotLeader:
		c.load.count(string(code))
		leader := answer.Header.Get("Isotone-Leader")
		if !slices.Contains(c.load.opt.Addrs, leader) {
			c.load.fault("%s names %q as the leader", c.addr, leader)
			c.next()
			return false
		}
		c.addr = leader
		return true
	case answer.Status == 503 && (code == isotone.CodeNoLeader || code == isotone.CodeOverloaded),
		answer.Status == 504 && code == isotone.CodeDeadlineExceeded,
		answer.Status == 500 && code == isotone.CodeInternal && c.load.opt.NodesMayFail:
		c.load.count(string(code))
		c.next()
		return false
	}
	c.load.fault("%s answered %d %q", c.addr, answer.Status, answer.Body)
	c.next()
	return false
}

// target returns the request: for one timestamp from even callers, for a few from odd ones.
func (c *caller) target() string {
	count := 1
	if c.id%2 == 1 {
		count = 1 + c.id
	}
	return fmt.Sprintf("/timestamp?n=%d%s", count, c.query())
}

func (c *caller) timeout() time.Duration {
	if short := c.load.opt.ShortTimeout; short > 0 && c.id/4%2 == 1 {
		return short
	}
	return c.load.opt.Timeout
}

func (c *caller) query() string {
	queries := c.load.opt.Queries
	return queries[c.id/2%len(queries)]
}

func (c *caller) record(op lincheck.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.history) >= operationsMax/len(c.load.callers) {
		c.truncated = true
		return
	}
	c.history = append(c.history, op)
}

// next moves on to the next node.
func (c *caller) next() {
	addrs := c.load.opt.Addrs
	c.addr = addrs[(slices.Index(addrs, c.addr)+1)%len(addrs)]
}

func outcomeOf(err error) string {
	var n net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout() {
		return "timeout"
	}
	return "connection"
}
