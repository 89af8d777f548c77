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

// The pause of a lane whose requests fail doubles from pauseMin to pauseMax: short
// beside an election, so that it hardly shows in a measured outage.
const (
	pauseMin = time.Millisecond
	pauseMax = 50 * time.Millisecond
)

// lane is one connection, or one stream of a connection, and the goroutine that uses it:
// it sends what the load has for it, waits for an answer, takes all that have come, and
// sends as many requests again.
//
// In an open loop it takes what is due by then. Without anything under way it waits for
// the next arrival; with something under way it waits for an answer, even if it could
// send more meanwhile. It is then the next lane to hear an answer that takes what is
// due, and only if all lanes have something under way. Two goroutines in each lane could
// send at once; the one more hand-off in every request would cost more.
type lane struct {
	id    int
	run   *run
	tally *shard

	conn conn // nil: not connected
	addr string

	under   flights // requests under way
	overdue []int64 // open loop: arrivals to send again, because they got no answer
	answer  answer
	seq     uint64

	failures int  // in a row
	leaving  bool // connect anew before the next request
	resting  bool // pause before the next request

	// oldest is when the oldest request under way was sent, 0 if there is none: the
	// coordinator breaks the connection when that is too long ago.
	oldest  atomic.Int64
	mu      sync.Mutex
	current conn // conn, for the coordinator
	late    bool // the coordinator has broken it
}

// flight is one request under way. Times are in nanoseconds since the run began.
type flight struct {
	due, sent int64 // in a closed loop due is sent
	floor     isotone.Timestamp
	made      uint64 // Options.Static: the timestamp that it will have got
}

// flights is a queue with a fixed size.
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

func newLane(id int, r *run, depth int) *lane {
	return &lane{
		id: id, run: r, tally: r.shards[id%len(r.shards)],
		under:   flights{ring: make([]flight, depth)},
		overdue: make([]int64, 0, 2*depth),
	}
}

// work is the lane's goroutine.
func (l *lane) work() {
	defer l.disconnect()
	for {
		if l.under.count == 0 && !l.ready() {
			return
		}
		var n int
		if !l.leaving && !l.resting {
			n = l.take()
		}
		if n > 0 {
			if err := l.conn.send(n); err != nil {
				l.lost(err)
				continue
			}
		} else if l.under.count == 0 && !l.leaving && !l.resting {
			return
		}
		if l.under.count > 0 {
			l.receive()
		}
	}
}

// ready pauses and connects as necessary. It reports whether there may be something left
// to do.
func (l *lane) ready() bool {
	for {
		if l.run.load.over(l) || l.run.hard.Err() != nil {
			return false
		}
		if l.leaving {
			l.disconnect()
		}
		if l.resting && !l.rest() {
			return false
		}
		if l.conn != nil {
			return true
		}
		l.connect()
	}
}

// connect makes one attempt.
func (l *lane) connect() {
	addr := l.run.route.addr()
	conn, err := l.run.dial(l.id, addr)
	if err != nil {
		if l.run.hard.Err() == nil {
			l.tally.failed(codeConnection, 1)
			l.run.route.follow(addr, "", oneLine(err.Error()))
			l.slower()
		}
		return
	}
	l.conn, l.addr = conn, addr
	l.mu.Lock()
	l.current, l.late = conn, false
	l.mu.Unlock()
	if l.failures == 0 {
		l.failures = -1 // not confirmed yet
	}
}

func (l *lane) disconnect() {
	l.leaving = false
	if l.conn == nil {
		return
	}
	l.mu.Lock()
	l.current = nil
	l.mu.Unlock()
	l.conn.close()
	l.conn = nil
}

// slower asks for a pause that grows with each failure in a row.
func (l *lane) slower() {
	if l.resting {
		return // several requests of one batch
	}
	l.failures = max(1, l.failures+1)
	l.resting = true
}

// rest pauses, and reports false if the run ends meanwhile.
func (l *lane) rest() bool {
	l.resting = false
	pause := pauseMax
	if shift := l.failures - 1; shift < 6 {
		pause = min(pauseMax, pauseMin<<max(0, shift))
	}
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.run.hard.Done():
		return false
	}
}

// take fills the free places with what the load has, and returns how much that is.
func (l *lane) take() int {
	before := l.under.count
	n := l.run.load.take(l, len(l.under.ring)-before)
	if n > 0 && before == 0 {
		l.oldest.Store(max(1, l.under.ring[l.under.head].sent))
	}
	return n
}

// begin puts one request under way, just before it is sent.
func (l *lane) begin(due, sent int64, floor isotone.Timestamp) {
	f := flight{due: due, sent: sent, floor: floor}
	if l.run.options.Static != "" {
		f.made = l.run.made.Add(1)
	}
	l.under.push(f)
}

// receive takes at least one answer and all that can be had without a wait.
func (l *lane) receive() {
	for now := int64(0); ; {
		if err := l.conn.receive(&l.answer); err != nil {
			l.lost(err)
			return
		}
		if now == 0 || !l.answer.along {
			now = l.run.now()
		}
		f := l.under.pop()
		if l.under.count > 0 {
			l.oldest.Store(max(1, l.under.ring[l.under.head].sent))
		} else {
			l.oldest.Store(0)
		}
		if l.answer.code == "" {
			l.succeeded(f, now)
		} else {
			l.refused(f)
		}
		l.leaving = l.leaving || l.answer.last
		if l.under.count == 0 || !l.conn.buffered() {
			return
		}
	}
}

// succeeded judges and counts an answer.
func (l *lane) succeeded(f flight, now int64) {
	r := l.run
	issued := l.answer.issued
	if f.made != 0 {
		issued = isotone.Range{First: isotone.Timestamp{Time: 1, Index: f.made}, Count: 1}
	}
	l.seq++
	op := operation{seq: l.seq, lane: l.id, sent: f.sent, answered: now, issued: issued}
	l.tally.answered(op, now-f.due, f.due >= r.warmup)
	r.gap.note(now)
	if err := r.online.End(f.floor, issued); err != nil {
		r.offended(err, op, l.addr)
	}
	if l.failures != 0 {
		l.failures = 0
		r.route.confirm(l.addr, seconds(now-r.warmup))
	}
}

// refused deals with a failure that the node reported.
func (l *lane) refused(f flight) {
	a := &l.answer
	l.tally.failed(a.code, 1)
	l.again(f)
	why := fmt.Sprintf("%s answers %s: %s", l.addr, a.code, a.text)
	switch isotone.Code(a.code) {
	case isotone.CodeNotLeader:
		if a.leader != "" && l.failures <= 0 {
			l.failures = 1 // the first time it is worth no pause
		} else if !l.leaving {
			l.slower()
		}
		l.leaving = true
		l.run.route.follow(l.addr, a.leader, why)
	case isotone.CodeOverloaded, isotone.CodeInvalidArgument, isotone.CodeUnauthorized:
		l.run.route.note(why) // another node would say the same
		l.slower()
	default:
		l.run.route.follow(l.addr, "", why)
		l.leaving = true
		l.slower()
	}
}

// lost deals with a connection that broke: the outcome of what was under way is not
// known, and nothing follows from it.
func (l *lane) lost(err error) {
	l.mu.Lock()
	late := l.late
	l.mu.Unlock()
	code := codeConnection
	switch {
	case late || errors.Is(err, context.DeadlineExceeded):
		code = codeTimeout
	case errors.Is(err, errMalformed):
		code = codeMalformed
	}
	l.tally.failed(code, max(1, l.under.count))
	for l.under.count > 0 {
		l.again(l.under.pop())
	}
	l.oldest.Store(0)
	l.run.route.follow(l.addr, "", l.addr+": "+oneLine(err.Error()))
	l.disconnect()
	l.slower()
}

// again keeps an arrival that got no timestamps for the next attempt. In a closed loop
// there is always a next request, so it does nothing.
func (l *lane) again(f flight) {
	if l.run.load.scheduled() {
		l.overdue = append(l.overdue, f.due)
	}
}

// expire breaks the connection if its oldest request was sent before the given time. It
// is for the coordinator.
func (l *lane) expire(before int64) {
	if sent := l.oldest.Load(); sent == 0 || sent >= before {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		l.late = true
		l.current.abort()
	}
}
