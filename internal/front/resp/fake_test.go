package resp

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is the time of all timestamps that a fake oracle hands out.
const epoch = 1 << 60

// oracle is a backend that counts. It is not safe for concurrent use.
type oracle struct {
	next    uint64
	err     error
	status  *front.Status
	later   bool // answer when answer is called, not within Submit
	short   bool // answer with too few
	pending []*front.Batch
	batches []front.Batch // all that were submitted, with their counts
}

func newOracle() *oracle { return &oracle{status: statusOf(1, 1)} }

// statusOf is what node self knows while leader leads nodes 1 to 3; 0 is none.
func statusOf(self, leader uint64) *front.Status {
	s := &front.Status{
		NodeID: self, Term: 7, Role: "follower", Leader: leader, Ceiling: epoch,
		Members: []front.Member{
			{NodeID: 1, Addr: "a.example:8081"}, {NodeID: 2, Addr: "b.example:8082"},
			{NodeID: 3, Addr: "[::1]:8083", Learner: true}, {NodeID: 4},
		},
	}
	if leader != 0 {
		s.LeaderAddr = s.Members[leader-1].Addr
	}
	if leader == self {
		s.Role = "leader"
	}
	return s
}

func (o *oracle) Status() *front.Status { return o.status }

func (o *oracle) Submit(b *front.Batch) {
	o.batches = append(o.batches, front.Batch{Mode: b.Mode, U64: b.U64, Local: b.Local, Timeline: b.Timeline, Op: b.Op, At: b.At, Floor: b.Floor, Trace: b.Trace, Counts: slices.Clone(b.Counts)})
	if o.later {
		o.pending = append(o.pending, b)
		return
	}
	o.settle(b)
}

// answer answers what is pending.
func (o *oracle) answer() {
	pending := o.pending
	o.pending = nil
	for _, b := range pending {
		o.settle(b)
	}
}

func (o *oracle) settle(b *front.Batch) {
	b.Err = o.err
	for i, n := range b.Counts {
		if o.err == nil {
			b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: epoch, Index: o.next}, Count: n}
			if b.U64 {
				first := isotone.Timestamp64From(isotone.Timestamp{Time: epoch}) + isotone.Timestamp64(o.next)
				b.Ranges[i].First = first.Timestamp()
			}
			if b.Op != 0 {
				b.Ranges[i].First = isotone.Timestamp{Time: 1000*uint64(b.Op) + b.At}
			}
			o.next += n
			if o.short {
				b.Ranges[i].Count--
			}
		}
	}
	b.Done(b)
}

// stamp is the answer to a TS command that begins at index.
func stamp(index uint64) string {
	b, _ := isotone.Timestamp{Time: epoch, Index: index}.MarshalBinary()
	return "$16\r\n" + string(b) + "\r\n"
}

// tape is a wire that keeps what is written, and does to a conn what the loop would.
type tape struct {
	t         testing.TB
	conn      *conn
	in        []byte
	out       []byte // not flushed
	got       []byte // flushed
	outputMax int
	paused    bool
	closed    bool // Close was called
	reason    error
	now       time.Duration
}

func newTape(t testing.TB, f *Front) *tape {
	w := &tape{t: t, outputMax: 256 << 10}
	w.conn = f.open(w, &access.Session{})
	return w
}

func (w *tape) Buffered() []byte     { return w.out }
func (w *tape) SetBuffered(b []byte) { w.out = b }
func (w *tape) Pause()               { w.paused = true }
func (w *tape) Choked() bool         { return len(w.out) > w.outputMax }
func (w *tape) Now() time.Duration   { return w.now }

func (w *tape) Resume() {
	if !w.paused {
		w.t.Error("Resume without Pause")
	}
	w.paused = false
}

func (w *tape) Close(err error) {
	if !w.closed {
		w.closed, w.reason = true, err
	}
}

// feed lets b arrive.
func (w *tape) feed(b []byte) {
	w.in = append(w.in, b...)
	w.turn()
}

// turn lets the conn work until it can do no more.
func (w *tape) turn() {
	for !w.closed && !w.paused && len(w.in) > 0 {
		before := len(w.in)
		used, err := w.conn.work(w.in)
		if used < 0 || used > before {
			w.t.Fatalf("used %d of %d bytes", used, before)
		}
		w.in = bytes.Clone(w.in[used:])
		if err != nil {
			w.Close(err)
		}
		choked := w.Choked()
		w.flush()
		if used == 0 && !choked {
			return
		}
	}
}

func (w *tape) flush() {
	w.got = append(w.got, w.out...)
	w.out = nil
}

// finish answers what is pending, again and again, until all is done.
func (w *tape) finish(o *oracle) string {
	for len(o.pending) > 0 {
		o.answer()
		w.flush()
		w.turn()
	}
	w.flush()
	return string(w.got)
}

// array encodes a command the way clients send it.
func array(args ...string) []byte {
	r := reply{}
	r.array(len(args))
	for _, arg := range args {
		r.bulk(arg)
	}
	return r.b
}
