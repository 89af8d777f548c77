package resp

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

const plain = "*1\r\n$2\r\nTS\r\n"

func TestConn_APipelineIsOneRequest(t *testing.T) {
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, Mode: isotone.ReadLease}))
	w.feed([]byte(strings.Repeat(plain, 32) + "TS 10\r\nTS 10\r\n" + plain + "TS 1 QUORUM\r\nTS 1 LEASE\r\nPING\r\n" + plain))
	if len(o.batches) != 1 || !w.paused {
		t.Fatalf("%d batches, paused: %v", len(o.batches), w.paused)
	}
	w.finish(o)
	want := []front.Batch{
		{Mode: isotone.ReadLease, Counts: []uint64{32 + 20 + 1}}, // by the front's choice
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}},
		{Mode: isotone.ReadLease, Counts: []uint64{1}},
		{Mode: isotone.ReadLease, Counts: []uint64{1}},
	}
	if !reflect.DeepEqual(o.batches, want) {
		t.Errorf("got %v\nwant %v", o.batches, want)
	}
}

// TestConn_CommandsOfOneFloorAreOneRequest, and no command gets the floor of another, also where
// the same command is repeated.
func TestConn_CommandsOfOneFloorAreOneRequest(t *testing.T) {
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, Mode: isotone.ReadQuorum}))
	low, high := isotone.Timestamp{Time: 1, Index: 2}, isotone.Timestamp{Time: 1, Index: 3}
	above := func(f isotone.Timestamp) string { return "TS FLOOR " + f.String() + "\n" }
	w.feed([]byte(plain + above(low) + above(low) + "TS 5 QUORUM FLOOR " + low.String() + "\r\n" + above(high) + plain + plain + above(high)))
	w.finish(o)
	want := []front.Batch{
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}},
		{Mode: isotone.ReadQuorum, Counts: []uint64{2}, Floor: low},
		{Mode: isotone.ReadQuorum, Counts: []uint64{5}, Floor: low},
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}, Floor: high},
		{Mode: isotone.ReadQuorum, Counts: []uint64{2}},
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}, Floor: high},
	}
	if !reflect.DeepEqual(o.batches, want) {
		t.Errorf("got %v\nwant %v", o.batches, want)
	}
}

func TestConn_64BitTimestampsAreRequestsOfTheirOwn(t *testing.T) {
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, Mode: isotone.ReadQuorum}))
	w.feed([]byte(plain + "TS64\r\nts64 10\r\nTS64 2 LEASE\r\nTS64 2 LEASE FLOOR 12345678901234567\r\n" + plain + "TS64 262144\r\nTS64\r\nTS64\r\n"))
	got := w.finish(o)
	want := []front.Batch{
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}},
		{Mode: isotone.ReadQuorum, Counts: []uint64{11}, U64: true},
		{Mode: isotone.ReadLease, Counts: []uint64{2}, U64: true},
		{Mode: isotone.ReadLease, Counts: []uint64{2}, U64: true, Floor: isotone.Timestamp64(12345678901234567).Timestamp()},
		{Mode: isotone.ReadQuorum, Counts: []uint64{1}},
		{Mode: isotone.ReadQuorum, Counts: []uint64{262144}, U64: true}, // as many as one request may have
		{Mode: isotone.ReadQuorum, Counts: []uint64{2}, U64: true},
	}
	if !reflect.DeepEqual(o.batches, want) {
		t.Errorf("got %v\nwant %v", o.batches, want)
	}
	first := isotone.Timestamp64From(isotone.Timestamp{Time: epoch}) + 1
	for _, at := range []isotone.Timestamp64{0, 1, 11, 13, 16, 262160, 262161} {
		text := (first + at).String()
		answer := fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		if n := strings.Count(got, answer); n != 1 {
			t.Errorf("%d answers %q in %q", n, answer, got)
		}
	}
}

func TestConn_64BitTimestampsHaveTheirLimits(t *testing.T) {
	w := newTape(t, New(Config{Backend: newOracle()}))
	w.feed([]byte("TS64 0\r\nTS64 262145\r\nTS64 1 FAST\r\nTS64 1 QUORUM 3\r\nTS64 FLOOR 1x\r\nTS6 1\r\n"))
	got := w.finish(newOracle())
	for _, want := range []string{
		`-ERR count "0": want a whole number from 1 to 262144`, `-ERR count "262145": want`, `-ERR mode "FAST"`,
		"-ERR wrong number of arguments for 'ts64' command", `-ERR floor "1x"`, "-ERR unknown command 'TS6'",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestConn_ALongPipelineIsSeveralRequests(t *testing.T) {
	o := newOracle()
	w := newTape(t, New(Config{Backend: o}))
	w.feed([]byte(strings.Repeat(plain, 2*batchCommandsMax+1)))
	if got := w.finish(o); len(got) != (2*batchCommandsMax+1)*timestampReply || len(o.batches) != 3 {
		t.Errorf("%d bytes for %d batches", len(got), len(o.batches))
	}
}

// TestConn_MixedCountsKeepNoMemory: the connection of a pipeline with many different
// counts goes back to what an idle one has.
func TestConn_MixedCountsKeepNoMemory(t *testing.T) {
	o := newOracle()
	w := newTape(t, New(Config{Backend: o}))
	var say, want strings.Builder
	for i, next := 1, uint64(0); i <= 2*runsKeep; i++ {
		fmt.Fprintf(&say, "TS %d\r\n", i)
		want.WriteString(stamp(next))
		next += uint64(i)
	}
	w.feed([]byte(say.String()))
	if got := w.finish(o); got != want.String() {
		t.Errorf("got %q", got)
	}
	if cap(w.conn.runs) > runsKeep {
		t.Errorf("keeps %d runs", cap(w.conn.runs))
	}
	if size := unsafe.Sizeof(conn{}); size > 512 {
		t.Errorf("a conn has %d bytes", size)
	}
}

func TestConn_EachCommandGetsTheError(t *testing.T) {
	long := strings.Repeat("x", 2*faultTextMax)
	for _, tt := range []struct {
		err  error
		want string
		code isotone.Code
	}{
		{&isotone.Error{Code: isotone.CodeNotLeader, Message: "x", Leader: "b.example:8082"}, "-MOVED 0 b.example:8082\r\n", isotone.CodeNotLeader},
		{&isotone.Error{Code: isotone.CodeNotLeader, Leader: "[::1]:80"}, "-MOVED 0 ::1:80\r\n", isotone.CodeNotLeader},
		{&isotone.Error{Code: isotone.CodeNotLeader, Message: "not here"}, "-CLUSTERDOWN not here\r\n", isotone.CodeNoLeader},
		{fmt.Errorf("wrapped: %w", isotone.ErrNoLeader), "-CLUSTERDOWN no leader is known\r\n", isotone.CodeNoLeader},
		{isotone.ErrOverloaded, "-TRYAGAIN too many requests are waiting\r\n", isotone.CodeOverloaded},
		{isotone.ErrClock, "-TRYAGAIN the clock cannot be trusted\r\n", isotone.CodeClock},
		{isotone.ErrDeadlineExceeded, "-TRYAGAIN no answer in time\r\n", isotone.CodeDeadlineExceeded},
		{isotone.ErrUnauthorized, "-NOAUTH not authorized\r\n", isotone.CodeUnauthorized},
		{isotone.ErrNoQuorum, "-TRYAGAIN no_quorum: too few voters are reachable\r\n", isotone.CodeNoQuorum},
		{isotone.ErrWrongCluster, "-WRONGCLUSTER this is another cluster\r\n", isotone.CodeWrongCluster},
		{isotone.ErrRegressed, "-REGRESSED the cluster is behind what the client has seen\r\n", isotone.CodeRegressed},
		{isotone.ErrNotFound, "-ERR not_found: not found\r\n", isotone.CodeNotFound},
		{isotone.ErrInvalidArgument, "-ERR invalid argument\r\n", isotone.CodeInvalidArgument},
		{isotone.ErrInternal, "-ERR internal: internal error\r\n", isotone.CodeInternal},
		{io.ErrUnexpectedEOF, "-ERR internal: unexpected EOF\r\n", isotone.CodeInternal},
		{errors.New("a\r\nb\x00c"), "-ERR internal: a  b c\r\n", isotone.CodeInternal},
		{isotone.Errorf(isotone.CodeClock, "%s", long), "-TRYAGAIN " + long[:faultTextMax] + "\r\n", isotone.CodeClock},
	} {
		o := newOracle()
		o.err = tt.err
		var code string
		var requests int
		w := newTape(t, New(Config{Backend: o, Observe: func(_, c string, n int, _ time.Duration) { code, requests = c, n }}))
		w.feed([]byte("PING\r\n" + strings.Repeat(plain, 3)))
		if got, want := w.finish(o), "+PONG\r\n"+strings.Repeat(tt.want, 3); got != want {
			t.Errorf("%v\n got %q\nwant %q", tt.err, got, want)
		}
		if code != string(tt.code) || requests != 3 {
			t.Errorf("%v: %d were observed as %q", tt.err, requests, code)
		}
	}
}

func TestConn_TooFewTimestampsAreNone(t *testing.T) {
	o := newOracle()
	o.short = true
	w := newTape(t, New(Config{Backend: o}))
	w.feed([]byte("TS 2\r\n"))
	if got := w.finish(o); got != "-ERR internal: the answer does not have the 2 timestamps asked for\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestConn_Observes(t *testing.T) {
	o := newOracle()
	o.later = true
	var seen []string
	w := newTape(t, New(Config{Backend: o, Observe: func(protocol, code string, n int, wall time.Duration) {
		seen = append(seen, fmt.Sprint(protocol, " ", code, " ", n, " ", wall))
	}}))
	w.feed([]byte("PING\r\n" + plain + plain + "TS 0\r\n"))
	w.now = time.Millisecond
	w.finish(o)
	if want := []string{"resp ok 2 1ms", "resp invalid_argument 1 0s"}; !reflect.DeepEqual(seen, want) {
		t.Errorf("got %q\nwant %q", seen, want)
	}
}

func TestConn_AnAnswerAfterTheEndIsHarmless(t *testing.T) {
	o := newOracle()
	o.later = true
	var seen string
	f := New(Config{Backend: o, Observe: func(_, code string, _ int, _ time.Duration) { seen = code }})
	other, w := newTape(t, f), newTape(t, f)
	w.feed([]byte(plain))
	w.conn.Closed(nil, io.EOF)
	if f.Conns() != 1 || f.conns[0] != other.conn {
		t.Errorf("%d connections", f.Conns())
	}
	if got := w.finish(o); got != "" || seen != string(isotone.CodeDeadlineExceeded) {
		t.Errorf("wrote %q, observed %q", got, seen)
	}
	other.conn.Closed(nil, io.EOF)
	if f.Conns() != 0 {
		t.Errorf("%d connections", f.Conns())
	}
}

func TestConn_StopsWhereOutputIsNotRead(t *testing.T) {
	o := newOracle()
	w := newTape(t, New(Config{Backend: o}))
	w.outputMax = 100
	say := strings.Repeat("PING\r\n", 50)
	used, err := w.conn.work([]byte(say))
	if want := 6 * (100/7 + 1); used != want || err != nil {
		t.Errorf("used %d bytes, %v; want %d", used, err, want)
	}
	w.out = nil
	say = strings.Repeat(plain, 2*batchCommandsMax)
	if used, _ = w.conn.work([]byte(say)); used != len(say)/2 {
		t.Errorf("used %d bytes", used)
	}
}

func TestFront_Stop(t *testing.T) {
	o := newOracle()
	o.later = true
	f := New(Config{Backend: o})
	idle, partial, busy := newTape(t, f), newTape(t, f), newTape(t, f)
	partial.feed([]byte("PI"))
	busy.feed([]byte(plain + "PING\r\n"))
	f.Stop()
	if !idle.closed || !partial.closed || busy.closed {
		t.Errorf("closed: %v %v %v", idle.closed, partial.closed, busy.closed)
	}
	if got := busy.finish(o); got != stamp(0) || busy.reason != ErrStopped {
		t.Errorf("wrote %q, closed with %v", got, busy.reason)
	}
	if f.Open(nil) != nil {
		t.Error("opens one more")
	}
}

func TestConn_QuitAndFaultsEndTheConnection(t *testing.T) {
	for _, say := range []string{"QUIT\r\nPING\r\n", "*x\r\nPING\r\n"} {
		w := newTape(t, New(Config{Backend: newOracle()}))
		w.feed([]byte(say))
		if !w.closed || w.reason == nil {
			t.Errorf("%q: closed %v with %v", say, w.closed, w.reason)
		}
	}
}

func TestConn_AnsweredTwicePanics(t *testing.T) {
	w := newTape(t, New(Config{Backend: newOracle()}))
	w.feed([]byte(plain))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	w.conn.done(&w.conn.batch)
}

// still is a wire that keeps the last output only.
type still struct{ out []byte }

func (w *still) Buffered() []byte     { return w.out[:0] }
func (w *still) SetBuffered(b []byte) { w.out = b }
func (w *still) Pause()               {}
func (w *still) Resume()              {}
func (w *still) Choked() bool         { return false }
func (w *still) Close(error)          {}
func (w *still) Now() time.Duration   { return 0 }

// prompt answers within Submit and remembers nothing.
type prompt struct{ next uint64 }

func (p *prompt) Status() *front.Status { return statusOf(1, 1) }

func (p *prompt) Submit(b *front.Batch) {
	for i, n := range b.Counts {
		b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: epoch, Index: p.next}, Count: n}
		p.next += n
	}
	b.Done(b)
}

// pipelines are what clients send all day.
var pipelines = []struct {
	name, say string
	commands  int
}{
	{"TS×1", plain, 1},
	{"TS×32", strings.Repeat(plain, 32), 32},
	{"TS_1000×32", strings.Repeat(string(array("TS", "1000")), 32), 32},
	{"TS_1000_QUORUM×32", strings.Repeat(string(array("TS", "1000", "QUORUM")), 32), 32},
	{"counts×32", strings.Repeat(string(array("TS", "10"))+string(array("TS", "2000")), 16), 32},
	{"TS×1000", strings.Repeat(plain, 1000), 1000},
	{"PING×32", strings.Repeat("*1\r\n$4\r\nPING\r\n", 32), 32},
}

func TestConn_DoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, p := range pipelines {
		c, say := New(Config{Backend: &prompt{}}).open(&still{}, &access.Session{}), []byte(p.say)
		if got := testing.AllocsPerRun(100, func() { c.work(say) }); got != 0 {
			t.Errorf("%s: %v allocations", p.name, got)
		}
	}
}

// BenchmarkConn measures what a command costs between the read and the write of a
// socket: parsing, cutting up, answering; ns/command is the number.
func BenchmarkConn(b *testing.B) {
	for _, p := range pipelines {
		b.Run(p.name, func(b *testing.B) {
			c, say := New(Config{Backend: &prompt{}}).open(&still{}, &access.Session{}), []byte(p.say)
			b.ReportAllocs()
			for b.Loop() {
				if used, _ := c.work(say); used != len(say) {
					b.Fatal("not all was used")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.commands), "ns/command")
		})
	}
}
