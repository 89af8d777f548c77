package http2_test

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/snowflake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// patience bounds waiting for what must happen; no test passes by its length.
const patience = time.Minute

const (
	epoch     = 1<<63 + 12345
	clusterID = 0xabc
	firstID   = 2124243617177423870
)

// oracle is a node in miniature. It answers within Submit unless it is held. It belongs to the
// loop's goroutine, but for what mu guards.
type oracle struct {
	mu       sync.Mutex
	next     uint64
	lines    map[string]uint64 // next of timelines; none is called "nothing"
	nextID   snowflake.ID
	err      error
	held     bool
	waiting  []*front.Batch
	sizes    []int // of the batches so far
	draining bool
	document []byte // the answer to a live document
}

func (o *oracle) Status() *front.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &front.Status{NodeID: 1, ClusterID: clusterID, Draining: o.draining}
}

func (o *oracle) Submit(b *front.Batch) {
	o.mu.Lock()
	o.sizes = append(o.sizes, len(b.Counts))
	held := o.held
	if held {
		o.waiting = append(o.waiting, b)
	}
	o.mu.Unlock()
	if !held {
		o.answer(b)
	}
}

func (o *oracle) answer(b *front.Batch) {
	o.mu.Lock()
	b.Err = o.err
	if b.Timeline == "nothing" {
		b.Err = isotone.Errorf(isotone.CodeNotFound, "there is no timeline %q", b.Timeline)
	}
	first, next := isotone.Timestamp{Time: epoch}, &o.next
	if b.Timeline != "" {
		own := o.lines[b.Timeline]
		first.Time, next = uint64(len(b.Timeline)), &own
	}
	for i, n := range b.Counts {
		first.Index = *next
		b.Ranges[i] = isotone.Range{First: first, Count: n}
		*next += n
	}
	if b.Timeline != "" {
		if o.lines == nil {
			o.lines = map[string]uint64{}
		}
		o.lines[b.Timeline] = *next
	}
	o.mu.Unlock()
	b.Done(b)
}

func (o *oracle) Fill(dst []snowflake.ID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range dst {
		dst[i] = firstID + o.nextID
		o.nextID++
	}
	return o.err
}

func (o *oracle) Worker() (int, snowflake.Layout, error) { return 0, snowflake.Twitter, nil }

func (o *oracle) live(name, _, _ string) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name != "doc" {
		return nil
	}
	return o.document
}

// set changes o under its lock.
func (o *oracle) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// submitted returns how many requests came to the oracle, and in how many batches.
func (o *oracle) submitted() (requests, batches int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.sizes {
		requests += n
	}
	return requests, len(o.sizes)
}

// site is a front with an oracle behind it.
type site struct {
	*oracle
	front   *http2.Front
	host    *loop.Host
	addr    string
	control *access.Control // of connections to come; nil: all may do everything
}

// start runs a front in a loop until the test ends. handler may be nil.
func start(t testing.TB, handler http.HandlerFunc, configure ...func(*http2.Config, *loop.Limits)) *site {
	t.Helper()
	s := &site{oracle: &oracle{}}
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) }
	}
	cfg := http2.Config{Handler: handler, Hot: http1.Config{Backend: s.oracle, IDs: s.oracle, Live: s.live}}
	limits := loop.Limits{}
	for _, change := range configure {
		change(&cfg, &limits)
	}
	t.Cleanup(func() { s.front.Wait() })
	s.host, s.addr = rig.Serve(t, limits, func(l *loop.Loop) loop.Service {
		cfg.Loop = l
		s.front = http2.New(cfg)
		return loop.Service{Open: s.open, Stop: s.front.Stop, Conns: s.front.Conns}
	})
	return s
}

func (s *site) open(c *loop.Conn) loop.Handler {
	if s.control != nil {
		session, err := s.control.Open(c.Remote().Addr(), nil, access.ClientPool)
		if err != nil {
			return nil
		}
		c.SetTag(&session)
	}
	return s.front.Open(c)
}

// release answers what waits, in the loop.
func (s *site) release() {
	s.host.Call(func() {
		var waiting []*front.Batch
		s.set(func() { waiting, s.waiting, s.held = s.waiting, nil, false })
		for _, b := range waiting {
			s.answer(b)
		}
	})
}

// client is a client that says each frame itself.
type client struct {
	t testing.TB
	net.Conn
	*xhttp2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	decoder *hpack.Decoder
	fields  map[string]string // of the block that is being read
	mayEnd  bool              // the connection may end while the client writes
}

// dial connects and, unless raw is set, greets.
func (s *site) dial(t testing.TB) *client { return dialTo(t, s.addr) }

func dialTo(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	c := &client{t: t, Conn: nc, Framer: xhttp2.NewFramer(nc, nc), fields: map[string]string{}}
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { c.fields[f.Name] = f.Value })
	c.send(xhttp2.ClientPreface)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) send(raw string) {
	if _, err := io.WriteString(c.Conn, raw); err != nil {
		c.t.Error(err)
	}
}

// together has all frames that say writes sent at once.
func (c *client) together(say func()) {
	var b bytes.Buffer
	was := c.Framer
	c.Framer = xhttp2.NewFramer(&b, nil)
	say()
	c.Framer = was
	c.send(b.String())
}

// encode returns the block for a GET of path with more fields, in pairs. A name that begins with a colon replaces that of the
// GET; an empty value removes it.
func (c *client) encode(path string, more ...string) []byte {
	pseudo := [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}}
	rest := [][2]string{}
	for i := 0; i < len(more); i += 2 {
		found := false
		for j := range pseudo {
			if pseudo[j][0] == more[i] {
				pseudo[j][1], found = more[i+1], true
			}
		}
		if !found {
			rest = append(rest, [2]string{more[i], more[i+1]})
		}
	}
	c.block.Reset()
	for _, f := range append(pseudo, rest...) {
		if strings.HasPrefix(f[0], ":") && f[1] == "" {
			continue
		}
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return bytes.Clone(c.block.Bytes())
}

// ask begins a request without a body.
func (c *client) ask(stream uint32, path string, more ...string) {
	c.headers(stream, true, c.encode(path, more...))
}

func (c *client) headers(stream uint32, ends bool, block []byte) {
	if err := c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: ends, EndHeaders: true}); err != nil && !c.mayEnd {
		c.t.Error(err)
	}
}

// reply is how a stream ended.
type reply struct {
	status   string
	fields   map[string]string
	trailers map[string]string
	body     string
	reset    xhttp2.ErrCode // with ended false
	ended    bool
}

// errGone is a GOAWAY with an error, or the end of the connection.
var errGone = errors.New("the connection has ended")

// read reads frames until each of the streams has ended. It returns them, and the GOAWAY that came instead, if one
// did.
func (c *client) read(streams ...uint32) (map[uint32]*reply, *xhttp2.GoAwayFrame, error) {
	c.t.Helper()
	got := map[uint32]*reply{}
	left := map[uint32]bool{}
	for _, id := range streams {
		got[id], left[id] = &reply{}, true
	}
	var bye *xhttp2.GoAwayFrame
	for len(left) > 0 {
		f, err := c.ReadFrame()
		if err != nil {
			return got, bye, errors.Join(errGone, err)
		}
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			copied := *g
			bye = &copied
			continue
		}
		id := f.Header().StreamID
		r := got[id]
		if r == nil {
			r = &reply{} // its fields change the table
		}
		if c.note(r, f) {
			delete(left, id)
		}
	}
	return got, bye, nil
}

// note adds a frame to the reply of its stream, and reports whether the stream has ended.
func (c *client) note(r *reply, f xhttp2.Frame) bool {
	switch f := f.(type) {
	case *xhttp2.HeadersFrame:
		c.fields = map[string]string{}
		if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil {
			c.t.Error(err)
		}
		if !f.HeadersEnded() {
			c.t.Error("a header block in parts")
		}
		_ = c.decoder.Close()
		if r.status == "" || r.status == "100" {
			r.status, r.fields = c.fields[":status"], c.fields
		} else {
			r.trailers = c.fields
		}
		r.ended = f.StreamEnded()
	case *xhttp2.DataFrame:
		r.body += string(f.Data())
		r.ended = f.StreamEnded()
		if n := len(f.Data()); n > 0 {
			_ = c.WriteWindowUpdate(0, uint32(n))
		}
		if n := len(f.Data()); n > 4096 && !r.ended {
			_ = c.WriteWindowUpdate(f.StreamID, uint32(n))
		}
	case *xhttp2.RSTStreamFrame:
		r.reset = f.ErrCode
		return true
	}
	return r.ended
}

// wantGone reads until the connection ends, and checks the code of the GOAWAY before.
func (c *client) wantGone(code xhttp2.ErrCode) {
	c.t.Helper()
	_, bye, err := c.read(1<<31 - 1)
	if !errors.Is(err, errGone) || bye == nil || bye.ErrCode != code {
		c.t.Errorf("GOAWAY %v, %v; want %v", bye, err, code)
	}
}

// errNotLeader is what a follower answers.
var errNotLeader = &isotone.Error{Code: isotone.CodeNotLeader, Message: "node 1 leads", Leader: "10.0.0.1:8081"}

// reference runs net/http's HTTP/2 with a handler until the test ends, and returns its address.
func reference(t testing.TB, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, Protocols: new(http.Protocols), DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0)}
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return ln.Addr().String()
}
