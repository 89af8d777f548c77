// Package http1 is the front for HTTP/1.1 in the event loop, the fast path: it answers the
// requests that make up the load, GET /timestamp, GET /api/snowflake, GET /live/NAME and GET /interval in
// their common spellings, and hands every connection that sends anything else to the
// standard servers.
//
// It owns the recognition of those requests and their answers on a connection. How
// queries, answers and faults are spelled is defined in internal/front/httpapi, shared with
// internal/front/web: the same bytes get the same answer from either, except for the order
// of header fields. It knows nothing of Raft or of how timestamps come to be. All of it
// runs on the goroutine of one [loop.Loop], without locks.
//
// No request is read by two parsers. A request is either hot from its first byte to its
// last, or the connection goes to net/http with that first byte in front. What is hot is so
// plain that there is one way to read it: a fixed first line except for a query without
// anything to decode, and header fields from a short list. See parse.go. Requests of HTTP/1.0
// are hot as well. A request that ends its connection is the last one that is read of it.
//
// Requests that have arrived together on one connection with the same read mode and floor become
// one batch. Until the batch is answered the connection is paused, so that answers keep the
// order of requests.
//
// Differences that a client can see, all in error cases:
//   - The fast path has no timeout of its own for the backend, which gives up by itself
//     after the same time; the message of that deadline_exceeded is the backend's.
//   - When a client ends its output while its request is being processed, net/http abandons
//     the request; the fast path answers it.
//   - When it does so in the middle of a request that follows others, net/http answers 400;
//     the fast path may just close.
//   - An HTTP/1.0 request with Transfer-Encoding ends its connection. net/http closes with an
//     earlier answer if it had read that request by then.
//   - Pipelined requests succeed or fail together, and an overloaded backend refuses
//     them together.
//
// One more: without [Config.Stats] the fast path ignores X-Request-ID, which
// internal/front/web echoes. To echo X-Request-ID, set REQUEST_STATS.
//
// Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
package http1

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/snowflake"
)

// The protocol names for Observe, without and with TLS.
const (
	protocol       = "http1"
	protocolSecure = "https1"
)

// ErrStopped ends connections after [Front.Stop], and while the node drains.
var ErrStopped = errors.New("the server is shutting down")

// Config configures a [Front]. Backend and Detached are required.
type Config struct {
	// Backend answers. It must call Done on the loop's goroutine, within Submit or
	// later. While its status says that the node drains, each connection is closed when what
	// was read of it is answered, with "Connection: close" on the last answer.
	Backend front.Backend
	// IDs answers requests for ids, on the loop's goroutine; nil leaves them to Detached.
	IDs front.IDs
	// Clock answers requests to the cluster clock; nil stands for front.NoClock.
	Clock front.Clock
	// Live returns the whole answer to GET of a live document, given the values of
	// Accept-Encoding and If-None-Match; nil, or a nil answer, leaves the request to Detached. It
	// is called on the loop's goroutine, and must not keep the strings.
	Live func(name, acceptEncoding, ifNoneMatch string) []byte
	// Mode applies to requests that name none. isotone.ReadDefault leaves the choice
	// to the backend.
	Mode isotone.ReadMode
	// Detached takes a connection that sent something else; everything unanswered can
	// be read from it again. It must not block, and owns the connection.
	Detached func(net.Conn)
	// Protocol and ProtocolSecure are the names for Observe, without and with TLS. Defaults "http1"
	// and "https1".
	Protocol, ProtocolSecure string
	// Observe, if not nil, is called once for every answered batch, with the number of
	// requests in it. The protocol is one of the names above; the code is "ok" or an
	// isotone.Code. Wall is measured on the loop's clock, from the turn that read the
	// requests to the turn that answered.
	Observe func(protocol, code string, requests int, wall time.Duration)
	// Stats, if not nil, measures every request, from when it was read until its answer is
	// in the output, and answers have X-Request-ID. It needs Loop, which owns the
	// connections.
	Stats *stats.Recorder
	// Loop owns the connections. Without it, requests with credentials that have to be checked
	// are left to Detached.
	Loop *loop.Loop
	// Trace, if not nil, traces requests, from when they were read until their answers are in
	// the output.
	Trace *trace.Exporter
	// AltSvc, if not empty, is the value of the field Alt-Svc in answers under TLS, as
	// internal/front/web has it.
	AltSvc string
	// Limits bounds the front; the zero value means the defaults.
	Limits Limits
}

// Limits bounds the requests in flight on one connection (I7). A field that is 0 or less has
// its default.
type Limits struct {
	// PipelineMax bounds the requests in one batch; what follows waits for its answer.
	// It should stay below the capacity of the backend's queue. Default 1024: more than
	// fits in one read of common requests.
	PipelineMax int
	// AnswerBytesMax bounds the answers to one batch. Default 256 KiB, as much as the
	// loop holds for a client that does not read.
	AnswerBytesMax int
}

func (l Limits) withDefaults() Limits {
	if l.PipelineMax <= 0 {
		l.PipelineMax = 1024
	}
	if l.AnswerBytesMax <= 0 {
		l.AnswerBytesMax = 256 << 10
	}
	return l
}

// Front is the fast path of one loop. Make it with [New]. All methods but Conns belong to the
// loop's goroutine.
type Front struct {
	cfg     Config
	conns   []*handler   // all open ones, in no order
	open    atomic.Int64 // how many there are, for other goroutines
	stopped bool

	ids     [binaryMax]snowflake.ID
	stamper *front.Stamper
	group   group // being collected, one at a time
	spare   spare
	answers answers
	secure  answers // under TLS
	scratch []byte  // an answer to a stream
	meter   *meter  // nil without Config.Stats
	tracer  *tracer // nil without Config.Trace
}

// New returns a front without connections. It panics without a Backend or Detached.
func New(cfg Config) *Front {
	if cfg.Backend == nil || cfg.Detached == nil {
		panic("http1: Config.Backend or Config.Detached is nil")
	}
	if cfg.Stats != nil && cfg.Loop == nil {
		panic("http1: Config.Stats without Config.Loop")
	}
	if cfg.Clock == nil {
		cfg.Clock = front.NoClock{}
	}
	if cfg.Protocol == "" {
		cfg.Protocol, cfg.ProtocolSecure = protocol, protocolSecure
	}
	cfg.Limits = cfg.Limits.withDefaults()
	f := &Front{cfg: cfg, stamper: front.NewStamper(cfg.Clock),
		answers: answers{wall: time.Now, scheme: "http", protocol: cfg.Protocol},
		secure:  answers{wall: time.Now, scheme: "https", protocol: cfg.ProtocolSecure},
	}
	if cfg.Stats != nil {
		f.meter = &meter{recorder: cfg.Stats, loop: cfg.Loop, ids: requestid.NewMaker()}
	}
	if cfg.Trace != nil {
		f.tracer = &tracer{cfg.Trace}
	}
	if cfg.AltSvc != "" {
		f.secure.fields = "Alt-Svc: " + cfg.AltSvc + "\r\n"
	}
	return f
}

// Open returns the handler for c, or nil after Stop. The listener's Limits.UnreadMax
// must be more than 4 KiB; its default is.
func (f *Front) Open(c *loop.Conn) loop.Handler {
	if f.stopped {
		return nil
	}
	h := &handler{reader: f.reader(c), index: len(f.conns)}
	f.conns = append(f.conns, h)
	f.open.Store(int64(len(f.conns)))
	return h
}

func (f *Front) reader(c *loop.Conn) reader {
	return reader{front: f, conn: c, speaker: speaker{session: access.Of(c.Tag())}}
}

// Stop closes idle connections at once, and each of the others when its batch has been
// answered, with "Connection: close" on the last answer. What a connection has sent
// beyond that batch is not answered, and Open returns nil from now on. The caller runs
// the loop until [Front.Conns] is 0, or until its own deadline.
func (f *Front) Stop() {
	f.stopped = true
	for _, h := range f.conns {
		if h.pending == nil {
			h.conn.Close(ErrStopped)
		}
	}
}

// Conns returns how many connections are open, or on their way to be closed. Any goroutine
// may call it.
func (f *Front) Conns() int { return int(f.open.Load()) }

func (f *Front) remove(h *handler) {
	last := len(f.conns) - 1
	f.conns[h.index] = f.conns[last]
	f.conns[h.index].index = h.index
	f.conns[last] = nil
	f.conns = f.conns[:last]
	f.open.Store(int64(last))
	if f.meter != nil && len(f.conns) == 0 {
		f.meter.settle() // the loop may not run another turn
	}
}

// draining reports whether clients are to go elsewhere.
func (f *Front) draining() bool { return f.cfg.Backend.Status().Draining }

// cluster returns the cluster's ID, 0 while the node does not know it.
func (f *Front) cluster() uint64 { return f.cfg.Backend.Status().ClusterID }

// answersFor returns what writes the answers on c.
func (f *Front) answersFor(c *loop.Conn) *answers {
	if c.Layer() != nil {
		return &f.secure
	}
	return &f.answers
}

func (f *Front) observe(c *loop.Conn, code string, requests int, wall time.Duration) {
	f.observeAs(f.answersFor(c).protocol, code, requests, wall)
}

func (f *Front) observeAs(protocol, code string, requests int, wall time.Duration) {
	if f.cfg.Observe != nil {
		f.cfg.Observe(protocol, code, requests, wall)
	}
}
