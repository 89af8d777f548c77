// Package http1 is the fast lane for plain HTTP/1.1 in the event loop: it answers the
// few requests that make up the load, GET /timestamp, GET /api/snowflake and
// GET /live/NAME in their common spellings, and hands
// every connection that says anything else to the standard servers.
//
// It owns the recognition of those requests and their answers on a connection. How
// queries, answers and faults are spelled is internal/front/httpapi's, shared with
// internal/front/web: the same bytes get the same answer from either, but for the order
// of header fields. It knows nothing of Raft or of how timestamps come to be. All of it
// runs on the goroutine of one [loop.Loop], without locks.
//
// No request is read by two parsers. A request is either hot from its first byte to its
// last, or the connection goes to net/http with that first byte in front; and what is
// hot is so plain that there is one way to read it: a fixed first line but for a query
// without anything to decode, and header fields from a short list. See parse.go.
//
// Requests that have arrived together on one connection with the same read mode become
// one batch. While it is out the connection is paused, so that answers keep the order
// of requests.
//
// [Secure] brings connections under TLS to the same lane: it shakes hands and puts the
// encryption between socket and handler, so that requests and answers are as without.
//
// Differences that a client can see, all in cases of distress:
//   - The lane has no timeout of its own for the backend, which gives up by itself
//     after the same time; the message of that deadline_exceeded is the backend's.
//   - When a client ends its output while its request is in work, net/http gives the
//     request up; the lane answers it.
//   - When it does so in the middle of a request that follows others, net/http says 400
//     to that; the lane may just close.
//   - Pipelined requests succeed or fail together, and an overloaded backend refuses
//     them together.
//
// And one that is not: the lane takes no notice of X-Request-ID, which internal/front/web
// returns. To look for it would cost every request, and who wants transactions to be
// followed has the node measure them, which does without the lane.
//
// Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
package http1

import (
	"errors"
	"net"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/snowflake"
)

// What Observe is told, without and with TLS.
const (
	protocol       = "http1"
	protocolSecure = "https1"
)

// ErrStopped ends connections after [Lane.Stop].
var ErrStopped = errors.New("the server is shutting down")

// Config is what a [Lane] is made of. Backend and HandOver are required.
type Config struct {
	// Backend answers. It must call Done on the loop's goroutine, within Submit or
	// later.
	Backend front.Backend
	// IDs answers requests for ids; nil hands them over. It is used on the loop's
	// goroutine.
	IDs front.IDs
	// Live returns the whole answer to GET of a live document, given the values of
	// Accept-Encoding and If-None-Match; nil, or a nil answer, hands the request over. It
	// is called on the loop's goroutine, and must not keep the strings.
	Live func(name, acceptEncoding, ifNoneMatch string) []byte
	// Mode applies to requests that name none. isotone.ReadDefault leaves the choice
	// to the backend.
	Mode isotone.ReadMode
	// HandOver takes a connection that the lane has nothing for; everything that was
	// not answered is read from it again. It must not block, and owns the connection.
	HandOver func(net.Conn)
	// Observe, if not nil, is called once for every batch that was answered, with the
	// number of requests in it. The protocol is "http1", or "https1" under TLS; the code is "ok" or an
	// isotone.Code. Wall is measured on the loop's clock, from the turn that read them
	// to the turn that answers.
	Observe func(protocol, code string, requests int, wall time.Duration)
	// AltSvc, if not empty, is the value of the field Alt-Svc in answers under TLS, as
	// internal/front/web has it.
	AltSvc string
	// Limits bounds the lane; the zero value means the defaults.
	Limits Limits
}

// Limits bounds what one connection can have in work (I7). A field that is 0 or less has
// its default.
type Limits struct {
	// PipelineMax bounds the requests in one batch; what follows waits for its answer.
	// It should stay below what the backend's queue takes. Default 1024: more than
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

// Lane is the fast lane of one loop. Make it with [New]. All methods belong to the
// loop's goroutine.
type Lane struct {
	cfg     Config
	conns   []*handler // all open ones, in no order
	stopped bool

	ids     [binaryMax]snowflake.ID
	group   group // what is being collected; only one at a time is
	spare   spare
	answers answers
	secure  answers // under TLS
}

// New returns a lane without connections. It panics without a Backend or HandOver.
func New(cfg Config) *Lane {
	if cfg.Backend == nil || cfg.HandOver == nil {
		panic("http1: Config.Backend or Config.HandOver is nil")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	l := &Lane{cfg: cfg, answers: answers{wall: time.Now, scheme: "http"}, secure: answers{wall: time.Now, scheme: "https"}}
	if cfg.AltSvc != "" {
		l.secure.fields = "Alt-Svc: " + cfg.AltSvc + "\r\n"
	}
	return l
}

// Open returns the handler for c, or nil after Stop. The listener's Limits.UnreadMax
// must be more than 4 KiB; its default is.
func (l *Lane) Open(c *loop.Conn) loop.Handler {
	if l.stopped {
		return nil
	}
	h := &handler{lane: l, conn: c, place: len(l.conns)}
	l.conns = append(l.conns, h)
	return h
}

// Stop closes idle connections at once, and each of the others when its batch has been
// answered, with "Connection: close" on the last answer. What a connection has sent
// beyond that batch is not answered, and Open refuses from now on. The caller runs the
// loop until [Lane.Conns] is 0, or for as long as it has patience.
func (l *Lane) Stop() {
	l.stopped = true
	for _, h := range l.conns {
		if h.work == nil {
			h.conn.Close(ErrStopped)
		}
	}
}

// Conns returns how many connections are open, or on their way to be closed.
func (l *Lane) Conns() int { return len(l.conns) }

func (l *Lane) remove(h *handler) {
	last := len(l.conns) - 1
	l.conns[h.place] = l.conns[last]
	l.conns[h.place].place = h.place
	l.conns[last] = nil
	l.conns = l.conns[:last]
}

// cluster returns the cluster's ID, 0 while the node does not know it.
func (l *Lane) cluster() uint64 { return l.cfg.Backend.Status().ClusterID }

// answersFor returns what writes the answers on c.
func (l *Lane) answersFor(c *loop.Conn) *answers {
	if c.Layer() != nil {
		return &l.secure
	}
	return &l.answers
}

func (l *Lane) observe(c *loop.Conn, code string, requests int, wall time.Duration) {
	if l.cfg.Observe == nil {
		return
	}
	how := protocol
	if c.Layer() != nil {
		how = protocolSecure
	}
	l.cfg.Observe(how, code, requests, wall)
}
