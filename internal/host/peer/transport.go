package peer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/core/wire"
)

const (
	// inboundMax bounds the incoming connections that are not admitted yet. A
	// cluster has a handful of nodes, so more than this are strangers; a peer that is
	// closed for this dials again soon.
	inboundMax = 64
	// acceptPause follows a failure to accept, such as a lack of file descriptors.
	acceptPause = 50 * time.Millisecond
	// warnEvery is the least time between two lines in the log about that.
	warnEvery = time.Minute
)

// Reasons for which this side disconnects; see [Config.Disconnected].
var (
	// ErrClosed: the Transport was closed.
	ErrClosed = errors.New("transport closed")
	// ErrRemoved: SetPeers no longer names the peer.
	ErrRemoved = errors.New("peer removed")
	// ErrReplaced: the same peer has opened a new connection.
	ErrReplaced = errors.New("connection replaced by a newer one")
)

// Config configures a Transport. NodeID, Listener, Hello and Attach are required; other
// functions may be nil.
//
// For each connection of a peer the Transport calls Connected, then Attach, and
// Disconnected when it has ended, before it calls Connected for the next one. Calls for
// different peers are concurrent. The functions must not block for long, and must not
// call [Transport.Close]; they may call all other methods.
type Config struct {
	// NodeID is this node's ID, not 0.
	NodeID uint64
	// Listener accepts the peers with higher IDs. The Transport owns it from New on.
	Listener net.Listener
	// Hello describes this node; the Transport fills in NodeID. It is called just before
	// each hello is sent; when this node dials, its earlier connection has ended by then.
	Hello func() wire.Hello
	// Admit decides from a hello whether to admit the other side; nil admits the peers
	// named in SetPeers. A node that is admitted but not named may still refuse this node,
	// and is then disconnected.
	Admit func(wire.Hello) *wire.Refusal
	// Security protects connections; nil leaves them in plaintext.
	Security Security
	// Insecure allows connections in plaintext with other machines. With Security it allows them
	// beside protected ones: from peers that dial in plaintext, and to those that do not speak TLS.
	// Otherwise connections are protected with Security, and without it only within this machine.
	Insecure bool
	// SecurityFailed reports why a protected connection was not opened, once for each: up to
	// some a second. Refusals are reported by Refused.
	SecurityFailed func(error)
	// Attach attaches an admitted connection to an event loop. conn is a [Secured] if it is
	// protected. The loop owns it from then on, passes what it reads to [Stream.Parse] and writes what [Stream.Append] returns.
	// The Transport calls stop, at most once, to have the loop end the connection; stop
	// must not block. Whatever ends the connection, the loop closes it and calls
	// [Stream.Ended] once. If Attach fails, the Transport closes conn.
	Attach Attacher
	// Connected reports that both sides have admitted each other.
	Connected func(wire.Hello)
	// Disconnected reports why a connection ended. err is never nil: it matches ErrClosed,
	// ErrRemoved or ErrReplaced, or is the error given to Attach or [Stream.Ended].
	Disconnected func(peer uint64, err error)
	// ConnectionRefused reports that, after a connection of the peer has ended, its address refuses
	// new ones: its process has ended, or something in between refuses. Nil: nothing is tried.
	ConnectionRefused func(peer uint64)
	// Refused reports every handshake that ended in a refusal, and which side refused: up
	// to a few times a second until SetPeers drops the peer. peer is 0 if the hello was
	// unreadable.
	Refused func(peer uint64, by wire.Side, r *wire.Refusal)
	// Log gets one record for each change of state; nil logs nothing.
	Log *slog.Logger
	// LogID returns the ID to log for a peer; nil logs the ID itself.
	LogID func(id uint64) uint64
	// Dial opens a connection; nil dials TCP. ctx ends after a second.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// PeerStatus is the state of one peer.
type PeerStatus struct {
	ID uint64
	// Addrs are its known addresses, most trusted first, and Addr is the one at which it is taken to be.
	Addrs     []string
	Addr      string
	Connected bool
	Secured   bool // the connection is protected
	// Since is when the peer was connected or disconnected last; before the first
	// connection, when it was added.
	Since time.Time
	// Refusal is the latest one since the peer was last connected, or nil; RefusedBy is
	// the side that refused.
	Refusal   *wire.Refusal
	RefusedBy wire.Side
	// Failure is why the latest attempt to dial the peer failed, at FailedAt; nil if it succeeded, was refused, or is the peer's to make.
	Failure  error
	FailedAt string
}

// Transport keeps a connection to every peer, and attaches it to an event loop once both
// sides are admitted. Its methods are safe for concurrent use.
type Transport struct {
	cfg       Config
	ctx       context.Context
	cancel    context.CancelCauseFunc
	wg        sync.WaitGroup
	inbound   chan struct{} // one token for each incoming connection not admitted yet
	strangers strangers

	mu     sync.RWMutex
	closed bool
	peers  map[uint64]*remote
	// leaving has the done channel of each removed peer whose last callback has not
	// returned; a peer that is added again waits for it.
	leaving map[uint64]<-chan struct{}
}

// New starts to accept connections. Before [Transport.SetPeers] it dials no peer and keeps
// no connection. It panics if a required field of cfg is missing.
func New(cfg Config) *Transport {
	if cfg.NodeID == 0 || cfg.Listener == nil || cfg.Hello == nil || cfg.Attach == nil {
		panic("peer: New needs NodeID, Listener, Hello and Attach")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.LogID == nil {
		cfg.LogID = func(id uint64) uint64 { return id }
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	t := &Transport{
		cfg:     cfg,
		inbound: make(chan struct{}, inboundMax),
		peers:   make(map[uint64]*remote),
		leaving: make(map[uint64]<-chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.wg.Go(t.accept)
	return t
}

// SetPeers replaces the set of peers; addrs maps IDs to addresses, most trusted first, of which
// [route.Route] chooses. It ignores this node's own ID. New peers are dialed or may dial, peers no
// longer named are disconnected, and changed addresses are used from the next dial on. A peer
// without an address is not dialed. SetPeers waits for none of this, and does nothing after Close.
func (t *Transport) SetPeers(addrs map[uint64][]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for id, r := range t.peers {
		if _, ok := addrs[id]; !ok {
			delete(t.peers, id)
			t.leaving[id] = r.done
			r.cancel(ErrRemoved)
		}
	}
	for id, known := range addrs {
		if r, ok := t.peers[id]; ok {
			r.setAddrs(known)
		} else if id != t.cfg.NodeID && id != 0 {
			r := newRemote(t, id, known)
			t.peers[id] = r
			previous := t.leaving[id]
			t.wg.Go(func() { r.run(previous) })
		}
	}
}

// Ask dials each peer with a higher ID that is not connected, although such a peer dials
// itself: one that has removed this node does not. It never leads to a connection; if the peer
// refuses this node for a reason of its own, Config.Refused learns that. Ask waits for nothing.
func (t *Transport) Ask() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return
	}
	for id, r := range t.peers {
		if id > t.cfg.NodeID && !r.snapshot().Connected {
			t.wg.Go(r.ask)
		}
	}
}

// Peers returns the status of every peer, sorted by ID.
func (t *Transport) Peers() []PeerStatus {
	t.mu.RLock()
	remotes := slices.Collect(maps.Values(t.peers))
	t.mu.RUnlock()
	all := make([]PeerStatus, 0, len(remotes))
	for _, r := range remotes {
		all = append(all, r.snapshot())
	}
	slices.SortFunc(all, func(a, b PeerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Close closes the listener and all connections, and waits for every goroutine and
// every callback. Further calls only wait.
func (t *Transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.mu.Unlock()
	var err error
	if first {
		t.cancel(ErrClosed)
		err = t.cfg.Listener.Close()
	}
	t.wg.Wait()
	return err
}

func (t *Transport) peer(id uint64) *remote {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peers[id]
}

// left records that the last callback of a removed peer has returned.
func (t *Transport) left(r *remote) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving[r.id] == r.done {
		delete(t.leaving, r.id)
	}
}

func (t *Transport) hello() wire.Hello {
	h := t.cfg.Hello()
	h.NodeID = t.cfg.NodeID
	return h
}

func (t *Transport) admit(h wire.Hello) *wire.Refusal {
	if t.cfg.Admit != nil {
		return t.cfg.Admit(h)
	}
	if t.peer(h.NodeID) == nil {
		return wire.Refusalf(wire.RefusedNotMember, "node %d is not a peer of node %d", h.NodeID, t.cfg.NodeID)
	}
	return nil
}

// refused reports whether err is a refusal, and if so logs it and calls Config.Refused.
func (t *Transport) refused(err error) bool {
	var e *wire.RefusedError
	if !errors.As(err, &e) {
		return false
	}
	if r := t.peer(e.Peer); r != nil {
		r.refused(e)
	} else if t.strangers.first(e.Peer, e.Refusal.Code) {
		t.cfg.Log.Warn("unknown node refused", "peer", t.cfg.LogID(e.Peer), "refusal", e.Refusal)
	}
	if t.cfg.Refused != nil {
		t.cfg.Refused(e.Peer, e.By, e.Refusal)
	}
	return true
}

func (t *Transport) accept() {
	var warned time.Time
	for {
		conn, err := t.cfg.Listener.Accept()
		switch {
		case err == nil:
			t.accepted(conn)
		case t.ctx.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed):
			t.cfg.Log.Error("peer listener closed outside of the transport", "err", err)
			return
		default:
			if now := time.Now(); warned.IsZero() || now.Sub(warned) >= warnEvery {
				warned = now
				t.cfg.Log.Error("peer connections cannot be accepted; trying again", "err", err)
			}
			pause(t.ctx, acceptPause)
		}
	}
}

// accepted starts the handshake of an incoming connection, or closes it if inboundMax
// others are not admitted yet.
func (t *Transport) accepted(conn net.Conn) {
	select {
	case t.inbound <- struct{}{}:
		t.wg.Go(func() {
			defer func() { <-t.inbound }()
			t.welcome(conn)
		})
	default:
		conn.Close()
	}
}

// welcome does the accepting side of a handshake and passes the connection to its peer.
func (t *Transport) welcome(conn net.Conn) {
	s := t.newStream(conn)
	handshake := wire.NewAcceptor(t.hello, t.admit).LogID(t.cfg.LogID).Proven(func(id uint64) *wire.Refusal { return t.proven(s, id) })
	if err := s.open(t.ctx, handshake, func() error { return t.secureAccepted(s) }); err != nil {
		if !t.refused(err) && t.ctx.Err() == nil && !errors.Is(err, io.EOF) && t.strangers.first(0, "") {
			t.cfg.Log.Warn("handshake of an incoming peer connection failed", "addr", conn.RemoteAddr().String(), "err", err)
		}
		return
	}
	if r := t.peer(s.Peer()); r == nil || !r.offer(s) {
		conn.Close()
	}
}

// strangersMax bounds how many strangers are remembered.
const strangersMax = 64

// strangers remembers which refusals of unknown nodes were logged.
type strangers struct {
	mu   sync.Mutex
	seen map[stranger]struct{}
}

type stranger struct {
	id   uint64
	code wire.RefusalCode
}

// first reports whether a stranger is new. When full, it forgets all.
func (s *strangers) first(id uint64, code wire.RefusalCode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := stranger{id, code}
	if _, ok := s.seen[key]; ok {
		return false
	}
	if s.seen == nil || len(s.seen) == strangersMax {
		s.seen = make(map[stranger]struct{})
	}
	s.seen[key] = struct{}{}
	return true
}

// pause waits for d or until ctx is done, and reports whether d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
