// Package grpc is the front for gRPC: package isotone.v1 of proto/isotone/v1/isotone.proto, the health service, and reflection.
//
// It owns the methods, their messages and how errors are spelled. It knows nothing of HTTP/2: internal/front/web finds it by the
// path of a request, says whom the request speaks for, and has checked that this client may have the method. What reads and
// appends messages, frames and statuses are pure functions, for a front in the event loop.
//
// Sources: "gRPC over HTTP2" (PROTOCOL-HTTP2.md), "Protocol Buffers: Encoding", grpc.health.v1, grpc.reflection.v1, and
// google.rpc.Status with google.rpc.ErrorInfo and google.rpc.RetryInfo.
package grpc

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/snowflake"
)

// Protocol is the name for observers.
const Protocol = "grpc"

// The paths of the methods.
const (
	PathTimestampsGet    = "/isotone.v1.Timestamps/Get"
	PathTimestampsStream = "/isotone.v1.Timestamps/Stream"
	PathIDsGet           = "/isotone.v1.Ids/Get"
	PathIntervalGet      = "/isotone.v1.Interval/Get"
	PathIntervalStamp    = "/isotone.v1.Interval/Stamp"
	PathIntervalWait     = "/isotone.v1.Interval/Wait"
	PathSessionsConnect  = "/isotone.v1.Sessions/Connect"
	PathLocksGet         = "/isotone.v1.Locks/Get"
	PathLocksWatch       = "/isotone.v1.Locks/Watch"
	PathFrontiersGet     = "/isotone.v1.Frontiers/Get"
	PathFrontiersWatch   = "/isotone.v1.Frontiers/Watch"
	PathHealthCheck      = "/grpc.health.v1.Health/Check"
	PathHealthWatch      = "/grpc.health.v1.Health/Watch"
	PathReflection       = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	PathReflectionAlpha  = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
)

// unary has the methods with one request and one answer. Each appends the message of the answer to b.
var unary = map[string]func(c *call, request, b []byte) ([]byte, error){
	PathTimestampsGet: (*call).timestamps,
	PathIDsGet:        (*call).ids,
	PathIntervalGet:   (*call).reading,
	PathIntervalStamp: (*call).stamp,
	PathIntervalWait:  (*call).wait,
	PathLocksGet:      lockView.get,
	PathFrontiersGet:  frontierView.get,
	PathHealthCheck:   (*call).health,
}

// streams has the others. What they return is the end of the stream.
var streams = map[string]func(c *call) error{
	PathTimestampsStream: (*call).stream,
	PathSessionsConnect:  (*call).connect,
	PathLocksWatch:       lockView.watch,
	PathFrontiersWatch:   frontierView.watch,
	PathHealthWatch:      (*call).watchHealth,
	PathReflection:       (*call).reflect,
	PathReflectionAlpha:  (*call).reflect,
}

// IsStream reports whether the method with that path lasts as long as its client likes.
func IsStream(path string) bool { return streams[path] != nil }

// Config configures a [Server]. IDs and Sessions may be nil, then there are none.
type Config struct {
	Backend  front.Backend
	IDs      front.IDs
	Clock    front.Clock
	Sessions front.Sessions // safe for concurrent use
	// Stamp makes timestamps as front.Stamper does. AwaitPast returns once a timestamp is past, or why it does not wait any
	// longer. Both are safe for concurrent use.
	Stamp     func(n uint64) (front.Stamps, error)
	AwaitPast func(context.Context, isotone.Timestamp) error
	// NotReadyIDs says why no IDs are made now, or "".
	NotReadyIDs func() string
	// Mode applies to requests that name none.
	Mode isotone.ReadMode
	// RequestTimeout bounds the wait for a request, and for the backend; WriteTimeout that for a client that does not read.
	RequestTimeout, WriteTimeout time.Duration
	// Stopping is closed when streams have to end.
	Stopping <-chan struct{}
	// Observe, if not nil, is told of each request of a stream of timestamps, as web.Config.Observe is of other requests.
	Observe func(protocol, code string, wall time.Duration)
}

// streamsMax bounds the streams of all clients: each has a goroutine, and some KiB of buffers.
const streamsMax = 4096

// Server answers calls. It is safe for concurrent use.
type Server struct {
	cfg      Config
	streams  atomic.Int64
	largeIDs atomic.Int64
}

// New returns a server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// call is a call that is being answered.
type call struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	session *access.Session
	ctx     context.Context // ends with the deadline, or when the client takes the call back
	in      messages
	begun   bool // the head of the answer is on its way
}

// Serve answers a call for s, and returns its code for observers. If there is an error, nothing was written, and the caller
// answers with it, by [Fail]. The path is one of those above.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, session *access.Session) (code string, err error) {
	c := &call{
		server: s, w: w, r: r, control: http.NewResponseController(w), session: session, ctx: r.Context(),
		in: messages{body: r.Body},
	}
	defer c.in.release()
	if value := r.Header.Get("Grpc-Timeout"); value != "" {
		timeout, err := ParseTimeout(value)
		if err != nil {
			return "", err
		}
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(c.ctx, timeout)
		defer cancel()
	}
	if method := unary[r.URL.Path]; method != nil {
		err = c.unary(method)
	} else {
		err = c.run(streams[r.URL.Path])
	}
	if err != nil && !c.begun {
		return "", err
	}
	return c.end(err), nil
}

// unary answers a call with one message.
func (c *call) unary(method func(c *call, request, b []byte) ([]byte, error)) error {
	_ = c.control.SetReadDeadline(time.Now().Add(c.server.cfg.RequestTimeout))
	request, err := c.in.only()
	if err != nil {
		return err
	}
	var small [128]byte
	answer, err := method(c, request, BeginFrame(small[:0]))
	if err != nil {
		return err
	}
	c.begin()
	_, _ = c.w.Write(EndFrame(answer, 0)) // it fails for a client that has left
	return nil
}

// run runs a stream, unless there are too many.
func (c *call) run(method func(*call) error) error {
	defer c.server.streams.Add(-1)
	if c.server.streams.Add(1) > streamsMax {
		return isotone.Errorf(isotone.CodeOverloaded, "too many streams are open")
	}
	done, err := c.session.TakeStreamOf(streamsMax)
	if err != nil {
		return err
	}
	defer done()
	_ = c.control.SetWriteDeadline(time.Time{}) // each write has one of its own
	return method(c)
}

// begin sets the fields of an answer.
func (c *call) begin() {
	setHead(c.w.Header())
	c.begun = true
}

// send writes frames of a stream, or only the head, and clears the deadline for the time until the next.
func (c *call) send(frames []byte) error {
	if !c.begun {
		c.begin()
	}
	_ = c.control.SetWriteDeadline(time.Now().Add(c.server.cfg.WriteTimeout))
	defer func() { _ = c.control.SetWriteDeadline(time.Time{}) }()
	if len(frames) > 0 {
		if _, err := c.w.Write(frames); err != nil {
			return err
		}
	}
	return c.control.Flush()
}

// end writes the trailers, and returns the code.
func (c *call) end(err error) string {
	s := StatusOf(err)
	h := c.w.Header()
	s.Fields(func(name, value string) { h[http.TrailerPrefix+name] = []string{value} })
	return s.Code
}

// timestamps is Timestamps.Get.
func (c *call) timestamps(request, b []byte) ([]byte, error) {
	a, err := ParseAsk(request)
	if err != nil {
		return b, err
	}
	p, err := c.server.prepare(c.session, a)
	if err != nil {
		return b, err
	}
	batch, done := p.batch(), make(chan struct{})
	batch.Counts, batch.Ranges, batch.Trace = []uint64{a.Count}, make([]isotone.Range, 1), trace.Of(c.ctx)
	batch.Done = func(*front.Batch) { close(done) }
	c.server.cfg.Backend.Submit(batch)
	if err := c.await(done); err != nil {
		return b, err
	}
	if batch.Moved {
		c.session.Moved(batch.Floor)
	}
	issued, err := resultOf(batch, 0)
	if err != nil {
		return b, err
	}
	c.session.Used(1, a.Count)
	return AppendRange(b, issued, a.U64), nil
}

// await waits for a batch, which the backend may still own after an error.
func (c *call) await(done <-chan struct{}) error {
	select {
	case <-done: // answered within Submit
		return nil
	default:
	}
	timer := time.NewTimer(c.server.cfg.RequestTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer within %v", c.server.cfg.RequestTimeout)
	case <-c.ctx.Done():
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time: %v", context.Cause(c.ctx))
	}
}

const (
	// smallIDs is how many IDs a call may have that does not count for largeIDsMax.
	smallIDs = 256
	// largeIDsMax bounds the concurrent answers with more: 1 MB each.
	largeIDsMax = 64
)

// ids is Ids.Get.
func (c *call) ids(request, b []byte) ([]byte, error) {
	n, err := ParseIDs(request)
	if err == nil {
		err = c.session.Take(1, n)
	}
	if err != nil {
		return b, err
	}
	if n > smallIDs {
		defer c.server.largeIDs.Add(-1)
		if c.server.largeIDs.Add(1) > largeIDsMax {
			return b, isotone.ErrOverloaded
		}
	}
	ids := make([]snowflake.ID, n)
	if err := c.server.cfg.IDs.Fill(ids); err != nil {
		return b, err
	}
	return AppendIDs(b, ids), nil
}

// reading is Interval.Get. The clock is read for this call alone.
func (c *call) reading(request, b []byte) ([]byte, error) {
	nonce, err := parseNonce(request)
	if err == nil {
		err = c.session.Take(1, 0)
	}
	if err != nil {
		return b, err
	}
	now, err := c.server.cfg.Clock.Now()
	if err != nil {
		return b, err
	}
	return appendReading(b, now, nonce), nil
}

// stamp is Interval.Stamp.
func (c *call) stamp(request, b []byte) ([]byte, error) {
	given, err := parseCount(request)
	if err != nil {
		return b, err
	}
	n, err := given.upTo(front.StampsMax)
	if err == nil {
		err = c.session.Take(1, n)
	}
	if err != nil {
		return b, err
	}
	stamps, err := c.server.cfg.Stamp(n)
	if err != nil {
		return b, err
	}
	return appendStamps(b, stamps), nil
}

// wait is Interval.Wait.
func (c *call) wait(request, b []byte) ([]byte, error) {
	t, err := parseWait(request)
	if err == nil {
		err = c.session.Take(1, 0)
	}
	if err == nil {
		err = c.server.cfg.AwaitPast(c.ctx, t)
	}
	return b, err
}

// observe tells of a request of a stream.
func (s *Server) observe(err error, began time.Time) {
	if observe := s.cfg.Observe; observe != nil {
		code := httpapi.CodeOK
		if err != nil {
			code = string(front.ErrorOf(err).Code)
		}
		observe(Protocol, code, time.Since(began))
	}
}
