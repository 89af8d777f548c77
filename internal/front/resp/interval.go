package resp

import (
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
)

// This file has INTERVAL: readings of the cluster clock, timestamps made of them, and waiting until
// a timestamp is past. No other node is asked, so it never redirects.

// intervalUsage is the error for an invalid INTERVAL command.
const intervalUsage = "want INTERVAL [nonce], INTERVAL STAMP [count], or INTERVAL WAIT timestamp"

// pastWaitsMax bounds the connections of a front that wait until a timestamp is past: each looks at
// the clock a hundred times a second.
const pastWaitsMax = 1024

// pastWait is an INTERVAL WAIT that waits. It belongs to the loop's goroutine, but for its timer,
// which has that goroutine look.
type pastWait struct {
	timestamp isotone.Timestamp
	timer     *time.Timer // nil before the first look
}

// waitsForPast reports whether an INTERVAL command is one that waits.
func waitsForPast(args [][]byte) bool { return len(args) == 3 && is(args[1], "WAIT") }

// runInterval answers INTERVAL, or has the connection wait for the answer.
func (c *conn) runInterval(args [][]byte, r *reply) error {
	if waitsForPast(args) {
		c.waitForPast(args[2], r)
		return nil
	}
	var err error
	switch {
	case len(args) > 1 && len(args) <= 3 && is(args[1], "STAMP"):
		err = c.makeStamps(args[2:], r)
	case len(args) <= 2:
		err = c.readClock(args[1:], r)
	default:
		err = isotone.Errorf(isotone.CodeInvalidArgument, "%s", intervalUsage)
	}
	c.intervalDone(err, r)
	return nil
}

// intervalDone answers an error, if it is one, and observes the command.
func (c *conn) intervalDone(err error, r *reply) {
	code := codeOK
	if err != nil {
		e := faultOf(err)
		code, r.b = string(e.Code), appendFault(r.b, e)
	}
	c.front.observe(code, 1, 0)
}

// readClock answers INTERVAL [nonce]. The clock is read for this command alone.
func (c *conn) readClock(args [][]byte, r *reply) error {
	var nonce uint64
	if len(args) > 0 {
		var err error
		if nonce, err = strconv.ParseUint(string(args[0]), 10, 64); err != nil {
			return isotone.Errorf(isotone.CodeInvalidArgument, "nonce %.40q: want a whole number of 64 bits in decimal; %s", args[0], intervalUsage)
		}
	}
	if err := c.session.Take(1, 0); err != nil {
		return err
	}
	reading, err := c.front.cfg.Clock.Now()
	if err != nil {
		return err
	}
	r.head('$', interval.ReadingSize)
	r.b = append(reading.Append(r.b, nonce), '\r', '\n')
	return nil
}

// makeStamps answers INTERVAL STAMP [count].
func (c *conn) makeStamps(args [][]byte, r *reply) error {
	n := uint64(1)
	if len(args) > 0 {
		var ok bool
		if n, ok = front.ParseCount(args[0]); !ok || n > front.StampsMax {
			return isotone.Errorf(isotone.CodeInvalidArgument, "count %.40q: want a whole number from 1 to %d", args[0], front.StampsMax)
		}
	}
	if err := c.session.Take(1, n); err != nil {
		return err
	}
	stamps, err := c.front.stamper.Make(n)
	if err != nil {
		return err
	}
	r.head('$', isotone.TimestampSize)
	r.b, _ = stamps.First.AppendBinary(r.b)
	r.b = append(r.b, '\r', '\n')
	return nil
}

// parsePast reads a timestamp as 32 hexadecimal digits or 16 bytes.
func parsePast(arg []byte) (t isotone.Timestamp, err error) {
	if t.UnmarshalBinary(arg) == nil {
		return t, nil
	}
	if t, err = isotone.ParseTimestamp(string(arg)); err != nil {
		return t, isotone.Errorf(isotone.CodeInvalidArgument, "timestamp %.40q: want 32 hexadecimal digits, or 16 bytes", arg)
	}
	return t, nil
}

// waitForPast answers INTERVAL WAIT if there is nothing to wait for.
func (c *conn) waitForPast(arg []byte, r *reply) {
	t, err := parsePast(arg)
	if err == nil {
		err = c.session.Take(1, 0)
	}
	again := time.Duration(0)
	if err == nil {
		again, err = front.UntilPast(c.front.cfg.Clock, t)
	}
	switch {
	case again > 0 && c.front.pastWaits >= pastWaitsMax:
		c.intervalDone(isotone.Errorf(isotone.CodeOverloaded, "too many commands wait for the cluster clock"), r)
	case again > 0:
		c.awaited = &pastWait{timestamp: t}
	case err == nil:
		r.ok()
		fallthrough
	default:
		c.intervalDone(err, r)
	}
}

// awaitPast begins the wait of INTERVAL WAIT. The connection waits for the answer.
func (c *conn) awaitPast() {
	c.asked = c.wire.Now()
	c.waiting = true
	c.front.pastWaits++
	c.look(c.awaited)
}

// look answers an INTERVAL WAIT whose timestamp is past, or looks again later.
func (c *conn) look(w *pastWait) {
	if c.awaited != w {
		return // it was answered, or the connection has ended
	}
	again, err := front.UntilPast(c.front.cfg.Clock, w.timestamp)
	switch {
	case again == 0:
		c.endPastWait(err)
	case c.wire.Now()-c.asked >= front.ClockWaitMax:
		c.endPastWait(front.ErrNotPast)
	default:
		w.timer = c.front.after(again, func() { c.front.cfg.Post(func() { c.look(w) }) })
	}
}

// endPastWait answers the INTERVAL WAIT that waits.
func (c *conn) endPastWait(err error) {
	c.forgetPastWait()
	c.waiting = false
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	code := codeOK
	if err == nil {
		r.ok()
	} else {
		e := faultOf(err)
		code, r.b = string(e.Code), appendFault(r.b, e)
	}
	c.wire.SetBuffered(r.b)
	c.front.observe(code, 1, c.wire.Now()-c.asked)
	c.goOn()
}

// forgetPastWait ends a wait without an answer. The connection may have ended.
func (c *conn) forgetPastWait() {
	if c.awaited.timer != nil {
		c.awaited.timer.Stop()
	}
	c.awaited = nil
	c.front.pastWaits--
}
