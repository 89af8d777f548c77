// Package http2 is the front for HTTP/2 in the event loop, over TLS and with prior knowledge. It
// owns the connection: frames, flow control, header compression, and the life of streams.
//
// A request is spelled as in HTTP/1.1 and given to [http1.Streams]. If it is hot, it is
// answered in the loop, with the answer of HTTP/1.1 spelled as in HTTP/2: there is one reading of a hot request, and one answer. All others run
// through [Config.Handler], each on a goroutine.
//
//	          not hot
//	frames ─────────────► exchange ──► http.Handler
//	   │  hot                │ body, window by window
//	   ▼                     ▼
//	http1.Streams ──────► frames
//
// Priorities are ignored, and nothing is pushed. Everything but the exchanges runs on the goroutine of one [loop.Loop].
//
// Sources: RFC 9113 (HTTP/2), RFC 7541 (HPACK), RFC 9110 (semantics).
package http2

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/host/loop"
)

// The protocol names for Observe, without and with TLS.
const (
	protocol       = "h2c"
	protocolSecure = "h2"
)

// ErrStopped ends connections after [Front.Stop].
var ErrStopped = errors.New("the server is shutting down")

// Config configures a [Front]. Loop and Handler are required.
type Config struct {
	// Loop owns the connections.
	Loop *loop.Loop
	// Hot configures the hot requests; without a Backend none is. Detached, Loop and the names of protocols do not
	// count.
	Hot http1.Config
	// Handler answers all other requests, each on a goroutine. Its ResponseWriter has Flush and the
	// deadlines of [http.ResponseController]. "Connection: close" in an answer ends the connection after the
	// requests under way.
	Handler http.Handler
	// Duplex, if not nil, returns what answers a call of gRPC in the loop, or nil: then Handler does.
	Duplex func(path string, s *access.Session, to grpc.Sender) grpc.Duplex
	// Backend answers calls that Handler hands over by [grpc.HandOver]. It is for the loop. Nil: none can be handed over.
	Backend front.Backend
	// Refusing, if not nil, returns an error for an address from which a connection may have hot requests only: the others
	// are refused, and the connection ends with ENHANCE_YOUR_CALM.
	Refusing func(netip.Addr) error
	// Limits bounds the connections; the zero value means the defaults.
	Limits Limits
	// Log takes panics of Handler that are not [http.ErrAbortHandler]. Nil discards them.
	Log *slog.Logger
}

// Limits bounds what clients can make the front hold (I7). A field that is 0 or less has its
// default.
type Limits struct {
	// StreamsMax bounds the concurrent requests of a connection; further ones are refused with
	// REFUSED_STREAM. Default 256.
	StreamsMax int
	// HeaderBytesMax bounds the fields of a request, counted as in RFC 9113 §6.5.2; a longer one is answered with 431.
	// Compressed, four times as much ends the connection. Default 16 KiB.
	HeaderBytesMax int
	// WriteTimeout bounds one request to Handler, from its header to the last byte of its answer; the handler can set another
	// deadline. It bounds the wait for a window, too. Default 30 s.
	WriteTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.StreamsMax <= 0 {
		l.StreamsMax = 256
	}
	if l.HeaderBytesMax <= 0 {
		l.HeaderBytesMax = 16 << 10
	}
	if l.WriteTimeout <= 0 {
		l.WriteTimeout = 30 * time.Second
	}
	return l
}

const (
	// continuationsMax bounds the frames of one header block. RFC 9113 §10.5.1 allows to bound it.
	continuationsMax = 16
	// tableMax bounds the dynamic table of the encoder. Its entries are fields of our answers, some 60 bytes each.
	tableMax = 1 << 10
	// noiseBurst and noiseEvery bound the frames of a connection that ask for nothing, such as PING, SETTINGS, empty
	// DATA or frames of unknown types: so many at once, and one more each time.
	noiseBurst = 1024
	noiseEvery = 5 * time.Millisecond
	// earnedEach more are paid for with each answer and each windowStep of it, and earnedMax of these are kept: a client may read an
	// answer of a window of 4 MiB long after it was sent, and enlarge two windows for each 4 KiB.
	earnedEach = 4
	earnedMax  = 8192
	// bodyMax bounds the bytes of a request that its handler has not read: it is the window of a stream until the client knows
	// bodyWindow, of which there are four in the window of a connection, so that a stalled stream does not stall the others.
	bodyMax    = windowDefault
	bodyWindow = 16 << 10
)

// Front is the HTTP/2 of one loop. Make it with [New]. All methods but Conns and Wait belong to
// the loop's goroutine.
type Front struct {
	cfg     Config
	hot     *http1.Front // nil: no request is hot
	conns   []*conn      // all open ones, in no order
	open    atomic.Int64 // how many there are, for other goroutines
	stopped bool

	heads   heads
	encoded bytes.Buffer // scratch: a block of fields
	request request      // scratch: the one that is being read
	text    []byte       // scratch: the same, spelled as in HTTP/1.1
	message []byte       // scratch: that of an answer, which may be given while text is read
	head    []byte       // scratch: the head of an answer, spelled as in HTTP/1.1
	begun   []*stream    // with calls that were begun in this turn
	spare   []*stream    // for calls to come

	exchanges sync.WaitGroup // their goroutines
}

// New returns a front without connections. It panics if a required field is missing.
func New(cfg Config) *Front {
	if cfg.Loop == nil || cfg.Handler == nil {
		panic("http2: Config.Loop or Handler is nil")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Hot.Protocol, cfg.Hot.ProtocolSecure = protocol, protocolSecure
	cfg.Hot.Detached = func(nc net.Conn) { _ = nc.Close() } // no stream is detached
	cfg.Hot.Loop = cfg.Loop
	f := &Front{cfg: cfg}
	if cfg.Hot.Backend != nil {
		f.hot = http1.New(cfg.Hot)
	}
	return f
}

// Open returns the handler for c, or nil after Stop. The listener's Limits.UnreadMax must be more than
// 16 KiB; its default is.
func (f *Front) Open(lc *loop.Conn) loop.Handler {
	if f.stopped {
		return nil
	}
	c := newConn(f, lc, len(f.conns))
	f.conns = append(f.conns, c)
	f.open.Store(int64(len(f.conns)))
	return c
}

// Drain tells all clients to go elsewhere, by GOAWAY. Their requests are still answered.
func (f *Front) Drain() {
	for _, c := range f.conns {
		c.leave()
	}
}

// Stop closes each connection when its requests are answered, and Open returns nil from now on. Requests
// that come later are refused. The caller runs the loop until [Front.Conns] is 0, or until its own deadline.
func (f *Front) Stop() {
	f.stopped = true
	for _, c := range f.conns {
		c.finish(codeNone, ErrStopped)
	}
}

// Conns returns how many connections are open, or on their way to be closed. Any goroutine
// may call it.
func (f *Front) Conns() int { return int(f.open.Load()) }

// Wait waits for the goroutines of all requests. The caller has closed the loop.
func (f *Front) Wait() { f.exchanges.Wait() }

func (f *Front) remove(c *conn) {
	last := len(f.conns) - 1
	f.conns[c.index] = f.conns[last]
	f.conns[c.index].index = c.index
	f.conns[last] = nil
	f.conns = f.conns[:last]
	f.open.Store(int64(last))
}

// draining reports whether clients are to go elsewhere.
func (f *Front) draining() bool { return f.hot != nil && f.cfg.Hot.Backend.Status().Draining }
