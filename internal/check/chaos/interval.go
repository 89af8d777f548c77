//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// intervalOutcome is the outcome of a timestamp of the cluster clock that was waited out.
const intervalOutcome = "interval"

// waitTries bounds how often a caller asks whether its timestamp is past.
const waitTries = 20

// interval takes a timestamp of the cluster clock and waits it out, and reports whether that succeeded. It is part of the
// history (I14).
func (c *caller) interval() bool {
	floor := c.load.online.Begin()
	op := lincheck.Operation{Client: uint64(c.id), Invocation: int64(c.load.now())}
	answer := c.askAny("/interval?n=1", c.load.opt.Timeout)
	if answer == nil {
		return false
	}
	var err error
	if op.Range, err = answer.Range(); err != nil || op.Range.Count != 1 || op.Range.First.Index < 1<<63 {
		c.load.fault("%s answered 200 to /interval?n=1 with %v, %v", c.addr, op.Range, err)
		return false
	}
	past := false
	for tries := 0; !past && tries < waitTries && !c.load.stopped(); tries++ {
		if past = c.askAny("/interval?wait="+op.Range.First.String(), c.load.opt.Timeout) != nil; !past {
			time.Sleep(jitter())
		}
	}
	if !past {
		return false // not known to be, so the operation does not count
	}
	op.Completion, op.Answered = int64(c.load.now()), true
	c.record(op)
	if err := c.load.online.End(floor, op.Range); err != nil {
		c.load.fault("an interval of %s: %v", c.addr, err)
	}
	c.load.count(intervalOutcome)
	return true
}

// askAny asks a random node, and returns its answer if that is 200, otherwise nil.
func (c *caller) askAny(target string, timeout time.Duration) *Answer {
	c.addr = c.load.opt.Addrs[rand.IntN(len(c.load.opt.Addrs))]
	conn, err := c.conns.to(c.addr, timeout)
	var answer *Answer
	if err == nil {
		answer, err = c.conns.ask(conn, target, timeout)
	}
	if err != nil {
		c.load.count("interval " + outcomeOf(err))
		return nil
	}
	switch code := answer.Code(); {
	case answer.Status == 200:
		return answer
	case code == isotone.CodeNoLeader, code == isotone.CodeOverloaded, code == isotone.CodeDeadlineExceeded:
		c.load.count(fmt.Sprint("interval ", code))
	default:
		c.load.fault("%s answered %d %q to %s", c.addr, answer.Status, answer.Body, target)
	}
	return nil
}
