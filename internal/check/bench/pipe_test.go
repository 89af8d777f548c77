package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

// script is a connection that returns given pieces to readers and accepts all writes.
type script struct {
	net.Conn
	pieces [][]byte
	wrote  bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) { return s.wrote.Write(p) }

func newTestPipe(c net.Conn, request string, depth int, parse parser) *pipe {
	p := &pipelined{depth: depth, request: func(string) string { return request }, parse: parse}
	return p.pipe(c, "a:1")
}

func TestPipe_ReadsAnswersHoweverTheyArrive(t *testing.T) {
	stream := []byte(strings.Repeat(oneAnswer, 3))
	for cut := range len(stream) {
		s := &script{pieces: [][]byte{stream[:cut], stream[cut:]}}
		if cut == 0 {
			s.pieces = s.pieces[1:]
		}
		c := newTestPipe(s, "GET /\r\n", 3, reading{count: 1}.parse)
		if err := c.send(3); err != nil || s.wrote.String() != "GET /\r\nGET /\r\nGET /\r\n" {
			t.Fatalf("sent %q, %v", s.wrote.String(), err)
		}
		for i := range 3 {
			var a answer
			if err := c.receive(&a); err != nil || a.issued != oneTimestamp {
				t.Fatalf("cut at %d, answer %d: %+v, %v", cut, i, a, err)
			}
		}
		if c.buffered() {
			t.Fatalf("cut at %d: something is left", cut)
		}
	}
}

func TestPipe_LargeAnswersArriveInASmallBuffer(t *testing.T) {
	large := "HTTP/1.1 503 X\r\nContent-Length: 30000\r\n\r\n" + strings.Repeat("x", 30000)
	c := newTestPipe(&script{pieces: [][]byte{[]byte(large + oneAnswer)}}, "GET /\r\n", 2, reading{count: 1}.parse)
	var a, b answer
	if err := errors.Join(c.send(2), c.receive(&a), c.receive(&b)); err != nil || a.code != "status_503" || b.issued != oneTimestamp {
		t.Errorf("%v, %+v, %+v", err, a.code, b)
	}
}

func TestPipe_RefusesAnswersThatNobodyAskedFor(t *testing.T) {
	c := newTestPipe(&script{pieces: [][]byte{[]byte(oneAnswer + oneAnswer)}}, "GET /\r\n", 2, reading{count: 1}.parse)
	var a answer
	if err := errors.Join(c.send(1), c.receive(&a)); err != nil {
		t.Fatal(err)
	}
	if err := c.send(1); !errors.Is(err, errMalformed) {
		t.Errorf("an early answer was taken for the next one: %v", err)
	}
}

func TestPipe_NothingFollowsTheLastAnswer(t *testing.T) {
	last := strings.Replace(oneAnswer, "Date:", "Connection: close\r\nDate:", 1)
	c := newTestPipe(&script{pieces: [][]byte{[]byte(last + oneAnswer)}}, "GET /\r\n", 2, reading{count: 1}.parse)
	var a answer
	if err := errors.Join(c.send(2), c.receive(&a)); err != nil || !a.last {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := c.receive(&a); err != io.EOF {
		t.Errorf("an answer after the last one: %+v, %v", a, err)
	}
}

// echoNode answers each request on a connection, and does not allocate.
type echoNode struct {
	net.Conn
	size    int // of a request
	answers []byte
	each    int // the length of one answer
	body    int // offset of the timestamp in it
	under   int // bytes of answers to be read
	next    uint64
}

func (e *echoNode) Write(p []byte) (int, error) {
	n := len(p) / e.size
	for i := range n {
		e.next++
		at := i*e.each + e.body
		_, _ = isotone.Timestamp{Time: 1, Index: e.next}.AppendBinary(e.answers[at:at])
	}
	e.under = n * e.each
	return len(p), nil
}

func (e *echoNode) Read(p []byte) (int, error) {
	if e.under > len(p) {
		panic("the answers must fit one read")
	}
	return copy(p, e.answers[:e.under]), nil
}

func (e *echoNode) Close() error { return nil }

// echoCaller is a caller whose requests are answered at once, all in one read.
func echoCaller(tb testing.TB, protocol string, depth int) *caller {
	tb.Helper()
	o := testOptions(func(o *Options) {
		o.Protocol, o.Pipeline = protocol, depth
		o.Requests, o.Duration = 0, time.Hour
	})
	text := map[string]string{"http1": oneAnswer, "resp": oneReply}[protocol]
	p := newProtocol(o, false).(*pipelined)
	r := newRun(o, p, newRoute([]string{"a:1"}), nil)
	r.load = newClosedLoop(r)
	l := r.callers[0]
	l.addr = "a:1"
	l.conn = p.pipe(&echoNode{
		size:    len(p.request("a:1")),
		answers: bytes.Repeat([]byte(text), depth),
		each:    len(text),
		body:    strings.Index(text, "AAAAAAAABBBBBBBB"),
	}, "a:1")
	return l
}

// echoes are the loads to measure without a network.
var echoes = []struct {
	protocol string
	depth    int
}{{"http1", 1}, {"resp", 1}, {"resp", 32}}

func TestCaller_AllocatesNothingForARequest(t *testing.T) {
	for _, tt := range echoes {
		l := echoCaller(t, tt.protocol, tt.depth)
		allocs := testing.AllocsPerRun(1000, func() {
			if n := l.take(); n != tt.depth {
				t.Fatalf("took %d requests", n)
			}
			if err := l.conn.send(tt.depth); err != nil {
				t.Fatal(err)
			}
			l.receive()
		})
		if allocs != 0 {
			t.Errorf("%s × %d: %v allocations for each batch", tt.protocol, tt.depth, allocs)
		}
		if s := l.run.online.Stats(); s.Checked != uint64(1001*tt.depth) || s.Violations != 0 {
			t.Errorf("%s × %d: %+v", tt.protocol, tt.depth, s)
		}
	}
}

// BenchmarkCaller measures a request without system calls and scheduling: taking, sending,
// parsing, checking, counting.
func BenchmarkCaller(b *testing.B) {
	for _, tt := range echoes {
		b.Run(fmt.Sprintf("%s/%d", tt.protocol, tt.depth), func(b *testing.B) {
			l := echoCaller(b, tt.protocol, tt.depth)
			b.ReportAllocs()
			for b.Loop() {
				l.take()
				if err := l.conn.send(tt.depth); err != nil {
					b.Fatal(err)
				}
				l.receive()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N*tt.depth), "ns/request")
		})
	}
}
