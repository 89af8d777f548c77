package resp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	tracing "github.com/isotone/isotone/internal/front/requestid" // a transaction here is that of MULTI
	"github.com/isotone/isotone/internal/host/loop"
)

const (
	// batchCommandsMax bounds the commands of a batch: 23 KiB of timestamps, or 290 KiB if
	// all get the longest error. At ten thousand rounds a second one connection can still
	// have ten million commands answered.
	batchCommandsMax = 1024
	// runsKeep bounds the capacity for runs that a connection keeps: 512 bytes. Only
	// pipelines with mixed counts have more than one run.
	runsKeep = 32
)

// wire is the part of *loop.Conn that a conn uses.
type wire interface {
	Buffered() []byte
	SetBuffered([]byte)
	Pause()
	Resume()
	Choked() bool
	Close(error)
	Now() time.Duration
}

// conn is one connection.
type conn struct {
	front  *Front
	wire   wire
	index  int // in front.conns
	id     uint64
	opened time.Duration
	name   string // by CLIENT SETNAME

	batch    front.Batch
	sum      [1]uint64 // of all counts in runs: the count of the batch
	issued   [1]isotone.Range
	runs     []run // the commands of the batch
	oneRun   [1]run
	commands int // in runs
	asked    time.Duration
	parent   tracing.Trace // the span of a caller of the batch, zero for none
	traced   *traced       // nil: the batch is not traced

	transaction *transaction // since MULTI; nil: none

	session  *access.Session
	proving  *proof   // the credentials that are checked
	leasing  *leasing // what the lessor has, or gets after the command
	memo     memo
	awaited  *pastWait // the timestamp that is waited for, or will be after the command
	sessions *sessions // nil before the first command about them
	waiting  bool      // the backend has the batch, the lessor a request, credentials are checked, or a timestamp or a session is awaited
	working  bool      // Data is running
	closed   bool
	resp3    bool
	local    bool   // by CLIENT FORWARD OFF: no other node is asked
	database uint8  // by SELECT, with REDIS_LOCKS
	slot     uint16 // of the key of the command that is run; see redirectSlot
	textIDs  bool   // the client's library rounds integers: ids are strings unless it asks otherwise
}

// run is n commands in a row that ask for count timestamps each, and that are redirected in the same way.
type run struct {
	count uint64
	n     int
	in    bool // as in ask
	slot  uint16
}

// memo caches a valid TS command without options as it was sent: clients send the same bytes again
// and again. No command is a prefix of another, so input that begins with text is this command.
type memo struct {
	ask   // but for the timeline: whoever speaks may get another one than named
	named string
	size  uint8
	text  [memoMax]byte
}

// memoMax is the length of the longest TS command in its usual form.
const memoMax = len("*3\r\n$2\r\nTS\r\n$10\r\n4294967296\r\n$6\r\nQUORUM\r\n")

var plainMemo = newMemo([]byte("*1\r\n$2\r\nTS\r\n"), ask{count: 1}, "")

func newMemo(text []byte, a ask, named string) memo {
	m := memo{ask: a, named: named, size: uint8(len(text))}
	copy(m.text[:], text)
	return m
}

// Data is called by the loop with what has arrived.
func (c *conn) Data(_ *loop.Conn, b []byte) (used int, err error) { return c.work(b) }

// Closed is called by the loop when the connection has ended. The batch may still be
// unanswered.
func (c *conn) Closed(*loop.Conn, error) {
	c.closed = true
	if c.awaited != nil {
		c.forgetPastWait()
		c.front.observe(string(isotone.CodeDeadlineExceeded), 1, c.wire.Now()-c.asked)
	}
	if c.awaiting() != nil {
		c.forgetSessionWait()
		c.front.observe(string(isotone.CodeDeadlineExceeded), 1, c.wire.Now()-c.asked)
	}
	c.endSession()
	c.front.remove(c)
}

// work implements Data.
func (c *conn) work(b []byte) (used int, err error) {
	c.working = true
	for used < len(b) && !c.waiting && !c.wire.Choked() {
		n, err := c.step(b[used:])
		if err != nil {
			c.working = false
			return used, err
		}
		if n == 0 {
			break // an incomplete command
		}
		used += n
	}
	c.working = false
	if c.waiting {
		c.wire.Pause()
	}
	return used, nil
}

// step takes what is at the front of b. It uses nothing if the first command is incomplete.
func (c *conn) step(b []byte) (used int, err error) {
	if c.transaction != nil {
		return c.collect(b)
	}
	return c.carryOut(b)
}

// carryOut submits the TS commands at the front of b that fit one batch, or runs one other
// command. It uses nothing if the first command is incomplete.
func (c *conn) carryOut(b []byte) (used int, err error) {
	q := &c.front.request
	may := c.session.May(access.Timestamps)
	for c.commands < batchCommandsMax {
		if may {
			if n := c.repeat(b[used:]); n > 0 {
				used += n
				continue
			}
		}
		n, err := q.parse(b[used:])
		var a ask
		var o options
		good := may && err == nil && n > 0 && len(q.args) > 0 && (isTS(q.args[0]) || isOracle(q.args[0]))
		if good {
			a, o, err = parseAsk(q.args)
			a.timeline, good = c.session.Timeline(o.timeline)
			if c.front.cfg.SlotsOfTimelines && len(q.args) > 1 {
				a.slot = slotOf(q.args[1])
			}
			good = good && err == nil && c.fits(a, o.floor) && (c.commands == 0 || o.op == timeline.OpIssue)
		}
		switch {
		case good:
			c.batch.Op, c.batch.At = o.op, o.at
			c.add(a, o.floor, 1)
			c.keepParent(o.parent)
			if n <= memoMax && o.floor == (isotone.Timestamp{}) && o.op == timeline.OpIssue { // a TRACEPARENT is longer
				c.memo = newMemo(b[used:used+n], a, o.timeline)
			}
			used += n
			continue
		case c.commands == 0:
			return c.other(q, n, err)
		}
		break // the command is not part of the batch, and parsed again after it
	}
	c.submit()
	return used, nil
}

// repeat adds the repetitions of the memorized command at the front of b, as far as they
// fit the batch.
func (c *conn) repeat(b []byte) (used int) {
	none, a := isotone.Timestamp{}, c.memo.ask
	var may bool
	if a.timeline, may = c.session.Timeline(c.memo.named); !may || !c.fits(a, none) {
		return 0
	}
	n, text := 0, c.memo.text[:c.memo.size]
	for room := c.room(a); n < room && bytes.HasPrefix(b[used:], text); n++ {
		used += len(text)
	}
	if n > 0 {
		c.add(a, none, n)
	}
	return used
}

// fits reports whether the current batch can take a with a floor.
func (c *conn) fits(a ask, floor isotone.Timestamp) bool {
	return c.commands == 0 || c.batch.Op == timeline.OpIssue && a.mode == c.batch.Mode && a.u64 == c.batch.U64 && a.timeline == c.batch.Timeline && floor == c.batch.Floor && c.room(a) > 0
}

// room returns how many more commands like a the batch can take: one request to the backend has the
// count of one command at most.
func (c *conn) room(a ask) int {
	return int(min(uint64(batchCommandsMax-c.commands), (a.countMax()-c.sum[0])/a.count))
}

func (c *conn) add(a ask, floor isotone.Timestamp, n int) {
	c.batch.Mode, c.batch.U64, c.batch.Timeline, c.batch.Floor = a.mode, a.u64, a.timeline, floor
	r := run{a.count, n, a.in, a.slot}
	if last := len(c.runs) - 1; last >= 0 && c.runs[last] == (run{a.count, c.runs[last].n, a.in, a.slot}) {
		c.runs[last].n += n
	} else {
		c.runs = append(c.runs, r)
	}
	c.commands += n
	c.sum[0] += a.count * uint64(n)
}

// submit hands the batch over. It may be answered before submit returns.
func (c *conn) submit() {
	if c.batch.Mode == isotone.ReadDefault {
		c.batch.Mode = c.front.cfg.Mode
	}
	c.issued[0] = isotone.Range{}
	c.batch.Trace = nil
	if c.traced = c.front.trace(c.commandName(), c.parent); c.traced != nil {
		c.batch.Trace = &c.traced.Context
	}
	c.batch.Local = c.local
	c.batch.Apart = false
	c.batch.Raise, c.batch.Moved = c.batch.Floor != (isotone.Timestamp{}) && c.session.May(access.Floors), false
	c.batch.Counts, c.batch.Ranges, c.batch.Err = c.sum[:], c.issued[:], nil
	c.asked = c.wire.Now()
	c.waiting = true
	if err := c.session.Charge(uint64(c.commands), c.sum[0]); err != nil {
		c.batch.Err = err
		c.done(&c.batch)
		return
	}
	c.front.cfg.Backend.Submit(&c.batch)
}

// done answers the commands of the batch.
func (c *conn) done(b *front.Batch) {
	if !c.waiting {
		panic("resp: a batch was answered twice")
	}
	c.waiting = false
	err := b.Err
	if err == nil && (len(b.Ranges) != 1 || b.Ranges[0].Count != c.sum[0]) {
		// Never answer with timestamps that were not issued (I3).
		err = isotone.Errorf(isotone.CodeInternal, "the answer does not have the %d timestamps asked for", c.sum[0])
	}
	if b.Moved {
		c.session.Moved(b.Floor)
	}
	code := codeOK
	switch {
	case c.closed:
		code = string(isotone.CodeDeadlineExceeded) // the client has left
	case err != nil:
		code = c.answerFault(err)
	default:
		c.session.Used(uint64(c.commands), c.sum[0])
		c.wire.SetBuffered(c.appendIssued(c.wire.Buffered(), b.Ranges[0]))
	}
	c.front.observe(code, c.commands, c.wire.Now()-c.asked)
	c.front.endTrace(c.traced, code, c.commands)
	c.reset()
	switch {
	case c.closed:
	case c.front.stopped:
		c.wire.Close(ErrStopped)
	case !c.working: // otherwise work continues
		c.wire.Resume()
	}
}

// commandName returns the name of the commands of the batch, as the first of them has it.
func (c *conn) commandName() string {
	switch u64, in := c.batch.U64, c.runs[0].in; {
	case c.batch.Op != timeline.OpIssue:
		return oracleCommand
	case u64 && in:
		return "TS64IN"
	case u64:
		return "TS64"
	case in:
		return "TSIN"
	}
	return "TS"
}

// appendIssued appends the answers to the commands of the batch.
func (c *conn) appendIssued(out []byte, issued isotone.Range) []byte {
	if c.batch.Op != timeline.OpIssue {
		r := reply{b: out}
		r.integer(int64(issued.First.Time))
		return r.b
	}
	if c.batch.U64 {
		return appendTimestamps64(out, isotone.Timestamp64From(issued.First), c.runs)
	}
	return appendTimestamps(out, issued.First, c.runs, c.commands)
}

// answerFault answers all commands of the batch with err, and returns its code.
func (c *conn) answerFault(err error) string {
	e := faultOf(err)
	if e.Code == isotone.CodeNotFound { // of a timeline: clients tell it from what they have done wrong
		e = isotone.Errorf(e.Code, "%s: %s", e.Code, e.Message)
	}
	if c.transaction != nil {
		c.transaction.redirect(e, c.runFault(nil, c.runs[0], e))
	}
	out := c.wire.Buffered()
	for _, r := range c.runs {
		start := len(out)
		out = c.runFault(out, r, e)
		size := len(out) - start
		out = slices.Grow(out, (r.n-1)*size)
		for range r.n - 1 {
			out = append(out, out[start:start+size]...)
		}
	}
	c.wire.SetBuffered(out)
	return string(e.Code)
}

// runFault appends why a command of a run is not answered. A timeline in a group of its own is elsewhere than its slot: clients are sent there
// for this command only.
func (c *conn) runFault(b []byte, r run, e *isotone.Error) []byte {
	switch {
	case e.Code != isotone.CodeNotLeader:
		return appendFault(b, e)
	case !r.in:
		return appendRedirect(b, "MOVED", r.slot, e.Leader)
	case c.batch.Apart:
		return appendRedirect(b, "ASK", timeline.Slot(c.batch.Timeline), e.Leader)
	}
	return appendRedirect(b, "MOVED", timeline.Slot(c.batch.Timeline), e.Leader)
}

// reset empties the batch.
func (c *conn) reset() {
	c.commands, c.sum[0] = 0, 0
	c.batch.Op, c.batch.At = timeline.OpIssue, 0
	c.parent, c.traced = tracing.Trace{}, nil
	c.runs = c.runs[:0]
	if cap(c.runs) > runsKeep {
		c.runs = c.oneRun[:0]
	}
}

// timestampReply is the length of a timestamp as a bulk string.
const timestampReply = len("$16\r\n") + isotone.TimestampSize + len("\r\n")

// appendTimestamps appends the answers to the n commands of runs, the first of which
// gets first.
func appendTimestamps(out []byte, first isotone.Timestamp, runs []run, n int) []byte {
	const head = '$' | '1'<<8 | '6'<<16 | '\r'<<24 | '\n'<<32
	at := len(out)
	out = slices.Grow(out, n*timestampReply)[:at+n*timestampReply]
	for _, r := range runs {
		for range r.n {
			p := out[at : at+timestampReply]
			binary.LittleEndian.PutUint64(p, head) // eight bytes; the next line overwrites the last three
			binary.BigEndian.PutUint64(p[5:], first.Time)
			binary.BigEndian.PutUint64(p[13:], first.Index)
			p[21], p[22] = '\r', '\n'
			first.Index += r.count
			at += timestampReply
		}
	}
	return out
}

// appendTimestamps64 is appendTimestamps for the 64-bit form: bulk strings with decimal numbers.
func appendTimestamps64(out []byte, first isotone.Timestamp64, runs []run) []byte {
	r := reply{b: out}
	for _, run := range runs {
		for range run.n {
			var digits [20]byte
			r.bulkBytes(strconv.AppendUint(digits[:0], uint64(first), 10))
			first += isotone.Timestamp64(run.count)
		}
	}
	return r.b
}

// other runs the command in q, which has n bytes and is not a valid TS. A protocol error in
// err ends the connection.
func (c *conn) other(q *request, n int, err error) (used int, _ error) {
	fault, broken := err.(protocolError)
	if !broken && (n == 0 || len(q.args) == 0) {
		return n, nil
	}
	r := &c.front.reply
	r.b, r.v3 = c.wire.Buffered(), c.resp3
	if broken {
		r.fault("ERR", fault.Error())
		n, err = 0, fault
	} else {
		err = c.run(q.args, r)
	}
	c.wire.SetBuffered(r.b)
	r.b = nil
	switch {
	case c.leasing != nil:
		c.lease()
	case c.proving != nil:
		c.prove()
	case c.awaited != nil:
		c.awaitPast()
	case c.awaiting() != nil:
		c.askSessions()
	}
	return n, err
}
