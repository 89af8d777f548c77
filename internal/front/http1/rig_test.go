package http1_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/snowflake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// patience bounds waiting for what must happen; no test passes by its length.
const patience = time.Minute

const epoch = 1<<63 + 12345 // larger than a float64 or an int64 can hold

// oracle is a node in miniature. It answers within Submit, unless it is held, because
// net/http gives a request up when its client has ended its output.
type oracle struct {
	cluster  atomic.Uint64 // its ID; 0: not known yet
	draining atomic.Bool

	mu      sync.Mutex
	next    uint64
	nextID  snowflake.ID
	err     error
	held    bool
	waiting []*front.Batch
	sizes   []int // of the batches so far
	modes   []isotone.ReadMode
	floors  []isotone.Timestamp
	named   []string // the timelines of the batches
}

const clusterID = 0xabc

func newOracle() *oracle {
	o := &oracle{}
	o.cluster.Store(clusterID)
	return o
}

func (o *oracle) Status() *front.Status {
	return &front.Status{NodeID: 1, ClusterID: o.cluster.Load(), Draining: o.draining.Load()}
}

func (o *oracle) Submit(b *front.Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(b)
	if o.held {
		o.waiting = append(o.waiting, b)
	} else {
		o.answer(b)
	}
}

// note counts a batch. o.mu is held.
func (o *oracle) note(b *front.Batch) {
	o.sizes, o.modes = append(o.sizes, len(b.Counts)), append(o.modes, b.Mode)
	o.floors, o.named = append(o.floors, b.Floor), append(o.named, b.Timeline)
}

// Fill makes ids of as many digits as they have for decades.
func (o *oracle) Fill(dst []snowflake.ID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	for i := range dst {
		dst[i] = firstID + o.nextID
		o.nextID++
	}
	return nil
}

const firstID = 2124243617177423870

func (o *oracle) Worker() (int, snowflake.Layout, error) { return 0, snowflake.Twitter, nil }

// later is an oracle that answers in the loop's turn only.
type later struct{ *oracle }

func (l later) Submit(b *front.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(b)
	l.waiting = append(l.waiting, b)
}

// turn answers what waits. Only the loop's goroutine calls it, as the batches of its connections are answered there.
func (o *oracle) turn() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		return
	}
	for _, b := range o.waiting {
		o.answer(b)
	}
	o.waiting = nil
}

// answer answers a batch. o.mu is held.
func (o *oracle) answer(b *front.Batch) {
	b.Err = o.err
	for i, n := range b.Counts {
		b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: epoch, Index: o.next}, Count: n}
		if b.U64 {
			first := isotone.Timestamp64From(isotone.Timestamp{Time: epoch}) + isotone.Timestamp64(o.next)
			b.Ranges[i].First = first.Timestamp()
		}
		o.next += n
	}
	b.Done(b)
}

// set changes o under its lock.
func (o *oracle) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// timelines returns those of the batches that have come.
func (o *oracle) timelines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.named)
}

// submitted returns how many requests have come in batches of what sizes.
func (o *oracle) submitted() (requests int, sizes []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.sizes {
		requests += n
	}
	return requests, o.sizes
}

// reset begins anew.
func (o *oracle) reset(err error) {
	o.set(func() { o.next, o.nextID, o.err, o.held, o.sizes, o.modes, o.named = 0, 0, err, false, nil, nil, nil })
}

// site is a client port with an oracle behind it.
type site struct {
	*oracle
	addr string
	web  *web.Server
	docs *live.Set
	tls  *tls.Config // of clients; nil: they speak without TLS

	tlsAlone *tls.Config // of the server, without a loop in front of it; nil: no TLS

	// With a loop in front of the web server:
	front    *http1.Front
	http2    *http2.Front
	gate     *gate.Gate
	detached atomic.Int64
	observed chan string
	loop     *loop.Loop
	secure   *secure.Terminator // nil without TLS
	calls    chan func()
	end      chan struct{}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newDocs returns a set with the documents state and scores, that compress, one that does
// not, one that is too large for the fast path, and one that never comes.
func newDocs(t testing.TB) *live.Set {
	text := func(size int) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(`"` + strings.Repeat("x", size) + `"`), nil }
	}
	docs, err := live.New(live.Config{Interval: time.Hour, Origins: []string{"*"}, Sources: []live.Source{
		live.Func("state", text(500)), live.Func("scores-1", text(4000)), live.Func("tiny", text(1)), live.Func("large", text(live.ReadyBytesMax)),
		live.Func("never", func(ctx context.Context) ([]byte, error) { return nil, errors.New("no") }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(docs.Close)
	await.Until(t, "the documents are loaded", func() bool {
		return docs.Lookup("state") != nil && docs.Lookup("scores-1") != nil && docs.Lookup("tiny") != nil && docs.Lookup("large") != nil
	})
	return docs
}

func (s *site) live(name, acceptEncoding, ifNoneMatch string) []byte {
	d := s.docs.Lookup(name)
	if d == nil {
		return nil
	}
	return d.Response(acceptEncoding != "" && live.AcceptsGzip(acceptEncoding), false, ifNoneMatch)
}

// startWeb runs a web server alone, until the test ends.
func startWeb(t testing.TB, configure ...func(*web.Config)) *site {
	l := listen(t)
	s := &site{oracle: newOracle(), addr: l.Addr().String(), docs: newDocs(t)}
	s.serveWeb(t, configure)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.take(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return s
}

// shaken is a connection under TLS with its handshake done.
type shaken struct {
	*tls.Conn
	beneath *beneath
}

// beneath carries the records, and can be replaced while nobody reads.
type beneath struct{ net.Conn }

func (c *shaken) WrapNetConn(wrap func(net.Conn) net.Conn) net.Conn {
	c.beneath.Conn = wrap(c.beneath.Conn)
	return c
}

// take gives a connection to the web server, after its handshake if the site has TLS.
func (s *site) take(c net.Conn) {
	if s.tlsAlone == nil {
		s.web.Take(c)
		return
	}
	below := &beneath{c}
	secured := &shaken{tls.Server(below, s.tlsAlone), below}
	_ = c.SetDeadline(time.Now().Add(patience))
	if secured.Handshake() != nil {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	s.web.Take(secured)
}

func (s *site) serveWeb(t testing.TB, configure []func(*web.Config)) {
	cfg := web.Config{Backend: s.oracle, IDs: s.oracle, Clock: s.oracle, Live: s.docs.Handler(), Limits: web.Limits{ReadHeaderTimeout: 2 * time.Second}}
	for _, change := range configure {
		change(&cfg)
	}
	if cfg.TLS != nil && s.loop == nil {
		s.tlsAlone = cfg.TLS.Clone()
		s.tlsAlone.NextProtos = []string{"http/1.1"}
	}
	s.web = web.New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.web.Serve(nil) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_ = s.web.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// config is what startFront makes a site of.
type config struct {
	site   *site
	front  http1.Config
	gate   gate.Config
	secure secure.Config // without TLS: none
	limits loop.Limits
	web    []func(*web.Config)
}

// startFront runs a loop with a gate and the front, and a web server for the rest, until the
// test ends.
func startFront(t testing.TB, configure ...func(*config)) *site {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{
		oracle: newOracle(), docs: newDocs(t), loop: l, calls: make(chan func(), 1), end: make(chan struct{}),
		observed: make(chan string, 1000),
	}
	rest := func(nc net.Conn) {
		s.detached.Add(1)
		s.web.Take(nc)
	}
	cfg := config{site: s, limits: loop.Limits{PartialTimeout: 2 * time.Second}}
	cfg.front = http1.Config{Backend: later{s.oracle}, IDs: s.oracle, Clock: s.oracle, Live: s.live, Detached: rest}
	cfg.gate = gate.Config{
		Loop: l, Rest: rest,
		Refuse:    func(nc net.Conn) { s.web.Refuse(nc) },
		HTTP1:     func(c *loop.Conn) loop.Handler { return s.front.Open(c) },
		HTTP2:     func(c *loop.Conn) loop.Handler { return s.http2.Open(c) },
		Elsewhere: func() int { return s.web.Connections() },
	}
	cfg.web = []func(*web.Config){func(c *web.Config) { c.Elsewhere = func() int { return s.gate.Connections() } }}
	cfg.secure = secure.Config{
		Loop: l,
		Open: func(c *loop.Conn, negotiated string) loop.Handler { return s.gate.Inside(c, negotiated) },
	}
	for _, change := range configure {
		change(&cfg)
	}
	if cfg.secure.TLS != nil {
		s.secure = secure.New(cfg.secure)
		cfg.gate.TLS = s.secure.Accept
	}
	s.front, s.gate = http1.New(cfg.front), gate.New(cfg.gate)
	s.serveWeb(t, cfg.web)
	s.http2 = http2.New(http2.Config{Loop: l, Hot: cfg.front, Handler: s.web.Handler()})
	ln := listen(t)
	s.addr = ln.Addr().String()
	if err := l.Listen(ln, cfg.limits, s.gate.Open); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(t)
	}()
	t.Cleanup(func() {
		close(s.end)
		l.Wake()
		<-ended
	})
	return s
}

// run is the loop's goroutine.
func (s *site) run(t testing.TB) {
	for {
		if err := s.loop.Wait(time.Second); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-s.end:
			if err := s.loop.Close(); err != nil {
				t.Error(err)
			}
			if s.secure != nil {
				s.secure.Wait()
			}
			s.http2.Wait()
			s.set(func() { s.held = false })
			s.turn() // what is still out is answered to nobody
			return
		case f := <-s.calls:
			f()
		default:
		}
		s.turn()
		s.loop.Flush()
	}
}

// do runs f on the loop's goroutine, after the loop has read what was sent before.
func (s *site) do(f func()) {
	done := make(chan struct{})
	s.calls <- func() { f(); close(done) }
	s.loop.Wake()
	<-done
}

func dial(t testing.TB, s *site) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// stream is a connection of either kind.
type stream interface {
	net.Conn
	CloseWrite() error
}

// open returns a connection as the site's clients have it.
func (s *site) open(t testing.TB) stream {
	t.Helper()
	c := dial(t, s)
	if s.tls == nil {
		return c
	}
	secured := tls.Client(c, s.tls)
	if err := secured.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secured
}

// exchange sends the pieces, ends its output if halfClose, and returns all that comes back
// until the server closes.
func (s *site) exchange(t testing.TB, halfClose bool, pieces ...string) string {
	t.Helper()
	c := s.open(t)
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i, piece := range pieces {
			if i > 0 && s.loop != nil {
				s.do(func() {}) // so that they come one by one
			}
			_, _ = io.WriteString(c, piece) // the server may well close in the middle of this
		}
		if halfClose {
			_ = c.CloseWrite()
		}
	}()
	got, err := io.ReadAll(c)
	<-sent
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open after %.60q", pieces)
	}
	return string(got)
}
