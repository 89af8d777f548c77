package peer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/route"
	"github.com/isotone/isotone/internal/core/wire"
)

const (
	dialTimeout = time.Second
	// loggedMax bounds the states of a peer that were logged since it was connected: a few
	// for each of its addresses.
	loggedMax = 64
)

var errNoAddr = errors.New("no address")

// remote is one peer. Its goroutine, run, serves one connection at a time.
type remote struct {
	t      *Transport
	id     uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run has returned
	// offers passes on connections that the peer has opened.
	offers chan *Stream
	asking atomic.Bool // ask runs
	// probing is set while probe runs.
	probing atomic.Bool

	mu     sync.Mutex
	status PeerStatus
	route  route.Route
	// logged has the states that were logged since the last change of the connection, so that
	// only the first of equal failures is, at each address.
	logged map[string]bool
	// unsendable is set when the first unsendable message was logged.
	unsendable bool
}

func newRemote(t *Transport, id uint64, addrs []string) *remote {
	r := &remote{
		t: t, id: id,
		done:   make(chan struct{}),
		offers: make(chan *Stream),
		status: PeerStatus{ID: id, Since: time.Now()},
		logged: map[string]bool{},
	}
	r.route.Know(addrs...)
	r.ctx, r.cancel = context.WithCancelCause(t.ctx)
	return r
}

// run serves one connection after another until the peer is removed. It begins when
// previous, the end of an earlier remote with the same ID, is closed or nil.
func (r *remote) run(previous <-chan struct{}) {
	defer r.t.left(r)
	defer close(r.done)
	defer r.cancel(ErrClosed)
	if previous != nil {
		<-previous
	}
	if r.id < r.t.cfg.NodeID {
		r.runDialer()
	} else {
		r.runAcceptor()
	}
}

func (r *remote) runAcceptor() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case s := <-r.offers:
			for s != nil {
				s = r.serve(s)
			}
		}
	}
}

func (r *remote) runDialer() {
	for pause(r.ctx, r.pause()) {
		addr := r.nextAddr()
		s, err := r.dial(addr)
		if err != nil {
			if r.t.refused(err) {
				r.waitLonger()
			} else if r.ctx.Err() == nil {
				r.failed(addr, err)
				state := "unreachable"
				if errors.As(err, new(*securityError)) || errors.Is(err, ErrClear) {
					state = "not secured"
				}
				r.logState(state+" at "+addr, slog.LevelWarn, "peer unreachable", "addr", addr, "err", err)
			}
			continue
		}
		r.reached()
		since := time.Now()
		r.serve(s)
		if time.Since(since) > route.PauseMax {
			r.lasted()
		}
	}
}

func (r *remote) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.route.Pause(rand.Float64())
}

// nextAddr begins an attempt, and returns its address.
func (r *remote) nextAddr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.route.Next()
}

func (r *remote) reached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route.Reached()
}

func (r *remote) failed(addr string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failure, r.status.FailedAt = err, addr
}

func (r *remote) waitLonger() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failure = nil
	r.route.Refused()
}

func (r *remote) lasted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route.Lasted()
}

// ask has the peer refuse this node; see [Transport.Ask].
func (r *remote) ask() {
	if !r.asking.CompareAndSwap(false, true) {
		return
	}
	defer r.asking.Store(false)
	s, err := r.dial(r.nextAddr())
	var refused *wire.RefusedError
	switch {
	case err == nil:
		s.conn.Close() // it does not know who dials
	case errors.As(err, &refused) && refused.By == wire.Remote && refused.Refusal.Code != wire.RefusedWrongNode:
		r.t.refused(err)
	}
}

// dial opens a connection.
func (r *remote) dial(addr string) (*Stream, error) {
	s, err := r.open(addr, r.t.cfg.Security)
	if r.t.cfg.Security != nil && r.t.cfg.Insecure && errors.Is(err, ErrNoTLS) {
		return r.open(addr, nil)
	}
	return s, err
}

// open dials a connection that security protects, or in plaintext if that is nil.
func (r *remote) open(addr string, security Security) (*Stream, error) {
	if addr == "" {
		return nil, errNoAddr
	}
	ctx, cancel := context.WithTimeout(r.ctx, dialTimeout)
	defer cancel()
	conn, err := r.t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s := r.t.newStream(conn)
	return s, s.open(r.ctx, wire.NewDialer(r.t.hello, r.id, r.t.admit).LogID(r.t.cfg.LogID), func() error {
		return r.t.secureDialed(s, r.id, security)
	})
}

// offer passes an incoming connection to run. It waits for the old connection to end,
// at most as long as a handshake may take, and reports whether run has taken s.
func (r *remote) offer(s *Stream) bool {
	timeout := time.NewTimer(handshakeTimeout)
	defer timeout.Stop()
	select {
	case r.offers <- s:
		return true
	case <-r.ctx.Done():
	case <-timeout.C:
	}
	return false
}

// serve attaches a connection to the event loop and waits until it has ended. If a newer
// connection replaces it, serve returns that one.
func (r *remote) serve(s *Stream) (next *Stream) {
	if r.ctx.Err() != nil {
		s.conn.Close()
		return nil
	}
	s.OnUnsendable(r.logUnsendable)
	r.connected(s)
	stop, err := r.t.cfg.Attach(s.conn, s)
	if err != nil {
		s.conn.Close()
		r.disconnected(err)
		return nil
	}
	next, err = r.await(s, stop)
	r.disconnected(err)
	return next
}

// await waits until an attached connection has ended, or ends it.
func (r *remote) await(s *Stream, stop func(error)) (next *Stream, err error) {
	var check <-chan time.Time
	if s.secured != nil {
		ticker := time.NewTicker(certificateCheckEvery)
		defer ticker.Stop()
		check = ticker.C
	}
	for {
		select {
		case err = <-s.ended:
			return nil, err
		case <-check:
			refusal := s.secured.Check(r.id)
			if refusal == nil {
				continue
			}
			err = refusal
		case <-r.ctx.Done():
			err = context.Cause(r.ctx)
		case next = <-r.offers:
			err = ErrReplaced
		}
		stop(err)
		<-s.ended
		return next, err
	}
}

func (r *remote) connected(s *Stream) {
	r.mu.Lock()
	r.status.Connected, r.status.Secured, r.status.Since = true, s.secured != nil, time.Now()
	r.status.Refusal, r.status.RefusedBy, r.status.Failure = nil, 0, nil
	clear(r.logged)
	r.mu.Unlock()
	r.logState("connected", slog.LevelInfo, "peer connected", "addr", s.conn.RemoteAddr().String(), "tls", s.secured != nil)
	if r.t.cfg.Connected != nil {
		r.t.cfg.Connected(s.Hello())
	}
}

func (r *remote) disconnected(err error) {
	r.mu.Lock()
	r.status.Connected, r.status.Secured, r.status.Since = false, false, time.Now()
	r.mu.Unlock()
	r.logState("disconnected", slog.LevelInfo, "peer disconnected", "err", err)
	if r.t.cfg.Disconnected != nil {
		r.t.cfg.Disconnected(r.id, err)
	}
	r.startProbe(err)
}

func (r *remote) refused(e *wire.RefusedError) {
	r.mu.Lock()
	r.status.Refusal, r.status.RefusedBy = e.Refusal, e.By
	r.mu.Unlock()
	r.logState("refused by "+e.By.String()+": "+string(e.Refusal.Code), slog.LevelWarn,
		"peer refused", "by", e.By.String(), "refusal", e.Refusal)
}

// logState logs a state, once until the peer is connected.
func (r *remote) logState(state string, level slog.Level, msg string, args ...any) {
	r.mu.Lock()
	repeated := r.logged[state]
	if len(r.logged) >= loggedMax {
		clear(r.logged)
	}
	r.logged[state] = true
	r.mu.Unlock()
	if !repeated {
		r.t.cfg.Log.Log(context.Background(), level, msg, append([]any{"peer", r.t.cfg.LogID(r.id)}, args...)...)
	}
}

// logUnsendable logs the first message that can never be sent: a defect or a wrong
// limit elsewhere, which would otherwise look like a lossy network.
func (r *remote) logUnsendable(m *raftpb.Message, err error) {
	r.mu.Lock()
	first := !r.unsendable
	r.unsendable = true
	r.mu.Unlock()
	if first {
		r.t.cfg.Log.Error("raft message cannot be sent", "peer", r.t.cfg.LogID(r.id), "type", m.GetType(), "bytes", wire.FrameOverhead+proto.Size(m), "err", err)
	}
}

func (r *remote) snapshot() PeerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Addr, s.Addrs = r.route.At(), r.route.Addresses()
	return s
}

func (r *remote) addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.route.At()
}

func (r *remote) setAddrs(addrs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route.Know(addrs...)
}
