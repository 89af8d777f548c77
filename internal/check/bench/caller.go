package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// The pause of a caller whose requests fail doubles from pauseMin to pauseMax: short compared
// with an election, so that it hardly shows in a measured outage.
const (
	pauseMin = time.Millisecond
	pauseMax = 50 * time.Millisecond
)

// caller is a goroutine with one connection, or one stream of a connection. It sends the
// requests that the load gives it, waits for an answer, reads all answers that have arrived,
// and sends as many requests again.
//
// In an open loop it takes the arrivals that are due. With nothing under way it waits for the
// next arrival; otherwise it waits for an answer, even if it could send more meanwhile. The
// next arrival then goes to the first caller that receives an answer or is idle. Separate
// goroutines for sending and receiving would avoid that wait, but the hand-off in every
// request would cost more.
type caller struct {
	id    int
	run   *run
	tally *shard

	conn conn // nil: not connected
	addr string

	under   flights // requests under way
	overdue []int64 // open loop: due times of arrivals to send again after a failure
	answer  answer
	seq     uint64

	failures int  // in a row
	leaving  bool // reconnect before the next request
	resting  bool // pause before the next request

	// oldest is when the oldest request under way was sent, 0 if there is none. If that is
	// too long ago, the coordinator closes the connection.
	oldest  atomic.Int64
	mu      sync.Mutex
	current conn // conn, for the coordinator
	late    bool // the coordinator has closed it
}

// flight is one request under way. Times are in nanoseconds since the run began.
type flight struct {
	due, sent int64 // equal in a closed loop
	floor     isotone.Timestamp
	made      uint64 // Options.Static: the timestamp to assume as the answer
}

// flights is a ring buffer of fixed size.
type flights struct {
	ring        []flight
	head, count int
}

func (f *flights) push(x flight) {
	f.ring[(f.head+f.count)%len(f.ring)] = x
	f.count++
}

func (f *flights) pop() flight {
	x := f.ring[f.head]
	f.head = (f.head + 1) % len(f.ring)
	f.count--
	return x
}

func newCaller(id int, r *run, depth int) *caller {
	return &caller{
		id: id, run: r, tally: r.shards[id%len(r.shards)],
		under:   flights{ring: make([]flight, depth)},
		overdue: make([]int64, 0, 2*depth),
	}
}

// work is the caller's goroutine.
func (c *caller) work() {
	defer c.disconnect()
	for {
		if c.under.count == 0 && !c.ready() {
			return
		}
		var n int
		if !c.leaving && !c.resting {
			n = c.take()
		}
		if n > 0 {
			if err := c.conn.send(n); err != nil {
				c.lost(err)
				continue
			}
		} else if c.under.count == 0 && !c.leaving && !c.resting {
			return
		}
		if c.under.count > 0 {
			c.receive()
		}
	}
}

// ready pauses and connects as necessary. It reports whether there may be requests left.
func (c *caller) ready() bool {
	for {
		if c.run.load.over(c) || c.run.hard.Err() != nil {
			return false
		}
		if c.leaving {
			c.disconnect()
		}
		if c.resting && !c.rest() {
			return false
		}
		if c.conn != nil {
			return true
		}
		c.connect()
	}
}

// connect makes one attempt.
func (c *caller) connect() {
	addr := c.run.route.addr()
	conn, err := c.run.dial(c.id, addr)
	if err != nil {
		if c.run.hard.Err() == nil {
			c.tally.failed(codeConnection, 1)
			c.run.route.follow(addr, "", oneLine(err.Error()))
			c.slower()
		}
		return
	}
	c.conn, c.addr = conn, addr
	c.mu.Lock()
	c.current, c.late = conn, false
	c.mu.Unlock()
	if c.failures == 0 {
		c.failures = -1 // no answer yet
	}
}

func (c *caller) disconnect() {
	c.leaving = false
	if c.conn == nil {
		return
	}
	c.mu.Lock()
	c.current = nil
	c.mu.Unlock()
	c.conn.close()
	c.conn = nil
}

// slower requests a pause, which grows with each failure in a row.
func (c *caller) slower() {
	if c.resting {
		return // a failure of the same batch
	}
	c.failures = max(1, c.failures+1)
	c.resting = true
}

// rest pauses, and reports false if the run ends meanwhile.
func (c *caller) rest() bool {
	c.resting = false
	pause := pauseMax
	if shift := c.failures - 1; shift < 6 {
		pause = min(pauseMax, pauseMin<<max(0, shift))
	}
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.run.hard.Done():
		return false
	}
}

// take takes requests from the load up to the depth, and returns their number.
func (c *caller) take() int {
	before := c.under.count
	n := c.run.load.take(c, len(c.under.ring)-before)
	if n > 0 && before == 0 {
		c.oldest.Store(max(1, c.under.ring[c.under.head].sent))
	}
	return n
}

// begin puts one request under way, just before it is sent.
func (c *caller) begin(due, sent int64, floor isotone.Timestamp) {
	f := flight{due: due, sent: sent, floor: floor}
	if c.run.options.Static != "" {
		f.made = c.run.made.Add(1)
	}
	c.under.push(f)
}

// receive waits for one answer, and reads all others that have arrived with it.
func (c *caller) receive() {
	for now := int64(0); ; {
		if err := c.conn.receive(&c.answer); err != nil {
			c.lost(err)
			return
		}
		if now == 0 || !c.answer.along {
			now = c.run.now()
		}
		f := c.under.pop()
		if c.under.count > 0 {
			c.oldest.Store(max(1, c.under.ring[c.under.head].sent))
		} else {
			c.oldest.Store(0)
		}
		if c.answer.code == "" {
			c.succeeded(f, now)
		} else {
			c.refused(f)
		}
		c.leaving = c.leaving || c.answer.last
		if c.under.count == 0 || !c.conn.buffered() {
			return
		}
	}
}

// succeeded checks and counts an answer.
func (c *caller) succeeded(f flight, now int64) {
	r := c.run
	issued := c.answer.issued
	if f.made != 0 {
		issued = isotone.Range{First: isotone.Timestamp{Time: 1, Index: f.made}, Count: 1}
	}
	c.seq++
	op := operation{seq: c.seq, caller: c.id, sent: f.sent, answered: now, issued: issued}
	c.tally.answered(op, now-f.due, f.due >= r.warmup)
	r.gap.note(now)
	if err := r.online.End(f.floor, issued); err != nil {
		r.offended(err, op, c.addr)
	}
	if c.failures != 0 {
		c.failures = 0
		r.route.confirm(c.addr, seconds(f.sent-r.warmup), seconds(now-r.warmup))
	}
}

// refused handles a failure that the node reported.
func (c *caller) refused(f flight) {
	a := &c.answer
	c.tally.failed(a.code, 1)
	c.again(f)
	why := fmt.Sprintf("%s answers %s: %s", c.addr, a.code, a.text)
	switch isotone.Code(a.code) {
	case isotone.CodeNotLeader:
		if a.leader != "" && c.failures <= 0 {
			c.failures = 1 // no pause the first time
		} else if !c.leaving {
			c.slower()
		}
		c.leaving = true
		c.run.route.follow(c.addr, a.leader, why)
	case isotone.CodeOverloaded, isotone.CodeInvalidArgument, isotone.CodeNotFound, isotone.CodeUnauthorized, isotone.CodeForbidden, isotone.CodeQuotaExceeded:
		c.run.route.note(why) // another node would answer the same
		c.slower()
	default:
		c.run.route.follow(c.addr, "", why)
		c.leaving = true
		c.slower()
	}
}

// lost handles a broken connection. The outcome of the requests under way is unknown; the
// checker does not need it.
func (c *caller) lost(err error) {
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	code := codeConnection
	switch {
	case late || errors.Is(err, context.DeadlineExceeded):
		code = codeTimeout
	case errors.Is(err, errMalformed):
		code = codeMalformed
	}
	c.tally.failed(code, max(1, c.under.count))
	for c.under.count > 0 {
		c.again(c.under.pop())
	}
	c.oldest.Store(0)
	c.run.route.follow(c.addr, "", c.addr+": "+oneLine(err.Error()))
	c.disconnect()
	c.slower()
}

// again keeps a failed arrival for another attempt. In a closed loop it does nothing.
func (c *caller) again(f flight) {
	if c.run.load.scheduled() {
		c.overdue = append(c.overdue, f.due)
	}
}

// expire closes the connection if its oldest request was sent before the given time. The
// coordinator calls it.
func (c *caller) expire(before int64) {
	if sent := c.oldest.Load(); sent == 0 || sent >= before {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.late = true
		c.current.abort()
	}
}
