package resp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
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

// wire is the part of *loop.Conn that a session uses.
type wire interface {
	Buffered() []byte
	SetBuffered([]byte)
	Pause()
	Resume()
	Choked() bool
	Close(error)
	Now() time.Duration
}

// session is one connection.
type session struct {
	front  *Front
	wire   wire
	index  int // in front.sessions
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

	leasing *front.WorkerRequest // what the lessor has, or gets after the command
	memo    memo
	waiting bool // the backend has the batch, or the lessor a request
	working bool // Data is running
	closed  bool
	resp3   bool
	local   bool // by CLIENT FORWARD OFF: no other node is asked
}

// run is n commands in a row that ask for count timestamps each.
type run struct {
	count uint64
	n     int
}

// ask is what a TS command asks for.
type ask struct {
	count uint64
	mode  isotone.ReadMode
}

// memo caches a valid TS command as it was sent: clients send the same bytes again and
// again. No command is a prefix of another, so input that begins with text is this command.
type memo struct {
	ask
	size uint8
	text [memoMax]byte
}

// memoMax is the length of the longest TS command in its usual form.
const memoMax = len("*3\r\n$2\r\nTS\r\n$10\r\n4294967296\r\n$6\r\nQUORUM\r\n")

var plainMemo = newMemo([]byte("*1\r\n$2\r\nTS\r\n"), ask{count: 1})

func newMemo(text []byte, a ask) memo {
	m := memo{ask: a, size: uint8(len(text))}
	copy(m.text[:], text)
	return m
}

// Data is called by the loop with what has arrived.
func (s *session) Data(_ *loop.Conn, b []byte) (used int, err error) { return s.work(b) }

// Closed is called by the loop when the connection has ended. The batch may still be
// unanswered.
func (s *session) Closed(*loop.Conn, error) {
	s.closed = true
	s.front.remove(s)
}

// work implements Data.
func (s *session) work(b []byte) (used int, err error) {
	s.working = true
	for used < len(b) && !s.waiting && !s.wire.Choked() {
		n, err := s.step(b[used:])
		if err != nil {
			s.working = false
			return used, err
		}
		if n == 0 {
			break // an incomplete command
		}
		used += n
	}
	s.working = false
	if s.waiting {
		s.wire.Pause()
	}
	return used, nil
}

// step submits the TS commands at the front of b that fit one batch, or runs one other
// command. It uses nothing if the first command is incomplete.
func (s *session) step(b []byte) (used int, err error) {
	q := &s.front.request
	for s.commands < batchCommandsMax {
		if n := s.repeat(b[used:]); n > 0 {
			used += n
			continue
		}
		n, err := q.parse(b[used:])
		var a ask
		good := err == nil && n > 0 && len(q.args) > 0 && isTS(q.args[0])
		if good {
			a, err = parseAsk(q.args)
			good = err == nil && s.fits(a)
		}
		switch {
		case good:
			s.add(a, 1)
			if n <= memoMax {
				s.memo = newMemo(b[used:used+n], a)
			}
			used += n
			continue
		case s.commands == 0:
			return s.other(q, n, err)
		}
		break // the command is not part of the batch, and parsed again after it
	}
	s.submit()
	return used, nil
}

// repeat adds the repetitions of the memorized command at the front of b, as far as they
// fit the batch.
func (s *session) repeat(b []byte) (used int) {
	if !s.fits(s.memo.ask) {
		return 0
	}
	n, text := 0, s.memo.text[:s.memo.size]
	for room := s.room(s.memo.count); n < room && bytes.HasPrefix(b[used:], text); n++ {
		used += len(text)
	}
	if n > 0 {
		s.add(s.memo.ask, n)
	}
	return used
}

// fits reports whether the current batch can take a.
func (s *session) fits(a ask) bool {
	return s.commands == 0 || a.mode == s.batch.Mode && s.room(a.count) > 0
}

// room returns how many more commands for count timestamps the batch can take: one request
// to the backend has a count of at most isotone.RangeCountMax.
func (s *session) room(count uint64) int {
	return int(min(uint64(batchCommandsMax-s.commands), (isotone.RangeCountMax-s.sum[0])/count))
}

func (s *session) add(a ask, n int) {
	s.batch.Mode = a.mode
	if last := len(s.runs) - 1; last >= 0 && s.runs[last].count == a.count {
		s.runs[last].n += n
	} else {
		s.runs = append(s.runs, run{a.count, n})
	}
	s.commands += n
	s.sum[0] += a.count * uint64(n)
}

// submit hands the batch over. It may be answered before submit returns.
func (s *session) submit() {
	if s.batch.Mode == isotone.ReadDefault {
		s.batch.Mode = s.front.cfg.Mode
	}
	s.issued[0] = isotone.Range{}
	s.batch.Local = s.local
	s.batch.Counts, s.batch.Ranges, s.batch.Err = s.sum[:], s.issued[:], nil
	s.asked = s.wire.Now()
	s.waiting = true
	s.front.cfg.Backend.Submit(&s.batch)
}

// done answers the commands of the batch.
func (s *session) done(b *front.Batch) {
	if !s.waiting {
		panic("resp: a batch was answered twice")
	}
	s.waiting = false
	err := b.Err
	if err == nil && (len(b.Ranges) != 1 || b.Ranges[0].Count != s.sum[0]) {
		// Never answer with timestamps that were not issued (I3).
		err = isotone.Errorf(isotone.CodeInternal, "the answer does not have the %d timestamps asked for", s.sum[0])
	}
	code := codeOK
	switch {
	case s.closed:
		code = string(isotone.CodeDeadlineExceeded) // the client has left
	case err != nil:
		code = s.answerFault(err)
	default:
		s.wire.SetBuffered(appendTimestamps(s.wire.Buffered(), b.Ranges[0].First, s.runs, s.commands))
	}
	s.front.observe(code, s.commands, s.wire.Now()-s.asked)
	s.reset()
	switch {
	case s.closed:
	case s.front.stopped:
		s.wire.Close(ErrStopped)
	case !s.working: // otherwise work continues
		s.wire.Resume()
	}
}

// answerFault answers all commands of the batch with err, and returns its code.
func (s *session) answerFault(err error) string {
	e := faultOf(err)
	out := s.wire.Buffered()
	start := len(out)
	out = appendFault(out, e)
	size := len(out) - start
	out = slices.Grow(out, (s.commands-1)*size)
	for range s.commands - 1 {
		out = append(out, out[start:start+size]...)
	}
	s.wire.SetBuffered(out)
	return string(e.Code)
}

// reset empties the batch.
func (s *session) reset() {
	s.commands, s.sum[0] = 0, 0
	s.runs = s.runs[:0]
	if cap(s.runs) > runsKeep {
		s.runs = s.oneRun[:0]
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

// other runs the command in q, which has n bytes and is not a valid TS. A protocol error in
// err ends the connection.
func (s *session) other(q *request, n int, err error) (used int, _ error) {
	fault, broken := err.(protocolError)
	if !broken && (n == 0 || len(q.args) == 0) {
		return n, nil
	}
	r := &s.front.reply
	r.b, r.v3 = s.wire.Buffered(), s.resp3
	if broken {
		r.fault("ERR", fault.Error())
		n, err = 0, fault
	} else {
		err = s.run(q.args, r)
	}
	s.wire.SetBuffered(r.b)
	r.b = nil
	if s.leasing != nil {
		s.lease()
	}
	return n, err
}
