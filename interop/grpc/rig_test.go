package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
)

// backend is a node in miniature. It answers within Submit unless it is held.
type backend struct {
	next    atomic.Uint64
	status  atomic.Pointer[front.Status]
	batches atomic.Int64 // that were submitted

	mu    sync.Mutex
	err   error
	holds bool
	held  []*front.Batch
}

func newBackend() *backend {
	b := &backend{}
	b.status.Store(&front.Status{ClusterID: 0xabc, NodeID: 1, Leader: 1, LeaderAddr: "127.0.0.1:1"})
	return b
}

func (b *backend) Status() *front.Status { return b.status.Load() }

// change replaces the status.
func (b *backend) change(change func(*front.Status)) {
	s := *b.Status()
	change(&s)
	b.status.Store(&s)
}

func (b *backend) Submit(batch *front.Batch) {
	b.batches.Add(1)
	b.mu.Lock()
	if b.holds {
		b.held = append(b.held, batch)
		b.mu.Unlock()
		return
	}
	err := b.err
	b.mu.Unlock()
	b.answer(batch, err)
}

func (b *backend) answer(batch *front.Batch, err error) {
	if batch.Err = err; err == nil {
		batch.Err = refusals[batch.Timeline]
	}
	for i, n := range batch.Counts {
		first := isotone.Timestamp{Time: timeOf(batch.Timeline), Index: b.next.Add(n) - n}
		if batch.U64 {
			first.Index = 0
		}
		batch.Ranges[i] = isotone.Range{First: first, Count: n}
	}
	batch.Done(batch)
}

// refusals are what is answered to requests of some timelines.
var refusals = map[string]error{
	"nothing":   isotone.Errorf(isotone.CodeNotFound, `there is no timeline "nothing"`),
	"elsewhere": &isotone.Error{Code: isotone.CodeNotLeader, Message: "node 2 owns it", Leader: "10.1.2.3:8080"},
	"limited":   &isotone.Error{Code: isotone.CodeQuotaExceeded, Message: "too many", RetryAfter: 2 * time.Second},
	"crowded":   isotone.Errorf(isotone.CodeOverloaded, "too many wait"),
}

// timeOf is the time of all timestamps of a timeline, which tells them apart; "" for the default order.
func timeOf(timeline string) uint64 { return 1<<60 + uint64(len(timeline))<<40 }

// hold keeps batches until release, and fail has the next ones fail.
func (b *backend) hold() { b.mu.Lock(); b.holds = true; b.mu.Unlock() }

func (b *backend) fail(err error) { b.mu.Lock(); b.err = err; b.mu.Unlock() }

func (b *backend) release() {
	b.mu.Lock()
	held := b.held
	b.holds, b.held = false, nil
	b.mu.Unlock()
	for _, batch := range held {
		b.answer(batch, nil)
	}
}

// waiting returns how many requests are held.
func (b *backend) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.held {
		n += len(batch.Counts)
	}
	return n
}

// holding returns how many batches are held.
func (b *backend) holding() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// site is a server with a backend in miniature.
type site struct {
	*backend
	web  *web.Server
	host *loop.Host // nil: net/http reads HTTP/2
	addr string
}

// eachServer runs a test with the node's own HTTP/2 and with that of net/http.
func eachServer(t *testing.T, test func(t *testing.T, s *site)) {
	t.Run("loop", func(t *testing.T) { test(t, startInLoop(t)) })
	t.Run("net/http", func(t *testing.T) { test(t, startStandard(t)) })
}

func newSite(t testing.TB) *site {
	s := &site{backend: newBackend()}
	s.web = web.New(web.Config{Backend: s.backend})
	t.Cleanup(s.release)
	return s
}

func startInLoop(t testing.TB) *site {
	s := newSite(t)
	s.host, s.addr = rig.Serve(t, loop.Limits{}, func(l *loop.Loop) loop.Service {
		h := http2.New(http2.Config{Loop: l, Handler: s.web.Handler(), Backend: &rig.InLoop{Backend: s.backend, Loop: l}})
		return loop.Service{Open: h.Open, Stop: h.Stop, Conns: h.Conns}
	})
	return s
}

func startStandard(t *testing.T) *site {
	s := newSite(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	server := &http.Server{Handler: s.web.Handler(), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// dial returns a client of addr.
func dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// soon bounds what must happen.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// authorization is the metadata of each call.
type authorization string

func (a authorization) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(a)}, nil
}
func (authorization) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = authorization("")
