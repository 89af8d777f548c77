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
)

const (
	// inboundMax bounds the incoming connections that are not admitted yet. A
	// cluster has a handful of nodes; more than this at once are strangers, and
	// the peer that finds no room dials again at once.
	inboundMax = 64
	// acceptPause keeps a listener that cannot accept (no file descriptors) from
	// spinning.
	acceptPause = 50 * time.Millisecond
)

// Reasons for a disconnection that lie on this side; see [Config.Disconnected].
var (
	// ErrClosed: the Transport was closed.
	ErrClosed = errors.New("transport closed")
	// ErrRemoved: SetPeers no longer names the peer.
	ErrRemoved = errors.New("peer removed")
	// ErrReplaced: the same peer has opened a new connection.
	ErrReplaced = errors.New("connection replaced by a newer one")
)

// Config says how a Transport behaves. NodeID, Listener, Hello and Attach are required;
// other functions may be nil.
//
// For one peer the calls come in order: Connected, Attach, and, when the connection has
// ended, Disconnected; only then Connected again. Calls for different peers are
// concurrent. None of the functions may block for long or call [Transport.Close]; all
// other methods are fine.
type Config struct {
	// NodeID is this node's id, not 0.
	NodeID uint64
	// Listener accepts the peers with higher ids. The Transport owns it from New
	// on.
	Listener net.Listener
	// Hello describes this node; NodeID is filled in. It is called whenever one is
	// about to be sent, after any earlier connection of a dialing node has ended.
	Hello func() Hello
	// Admit decides about the other side from its hello; nil admits everyone whom SetPeers
	// names. One that is admitted and not named gets to judge this node, and is then
	// disconnected.
	Admit func(Hello) *Refusal
	// Attach attaches an admitted connection to an event loop, which owns it from then
	// on, passes what it reads to [Stream.Parse], and writes what [Stream.Append] gives.
	// stop asks to end the connection: the transport calls it at any time, from any
	// goroutine, and it must not block. Whatever ends the connection, the loop closes it
	// and calls [Stream.Ended] once. If Attach fails, the transport closes conn.
	Attach Attacher
	// Connected tells that both sides have admitted each other.
	Connected func(Hello)
	// Disconnected tells why that ended; err is never nil. It matches ErrClosed,
	// ErrRemoved, ErrReplaced, ErrProtocol, ErrFrameSize, ErrChecksum,
	// os.ErrDeadlineExceeded (the peer stalled) or is the socket's error.
	Disconnected func(peer uint64, err error)
	// Refused tells of every handshake that ended in a refusal, and which side
	// refused: up to a few times a second for as long as the dialer tries, which
	// is until SetPeers drops the peer. peer is 0 when an unreadable hello was
	// refused.
	Refused func(peer uint64, by Side, r *Refusal)
	// Log gets one record for each change of state; nil logs nothing.
	Log *slog.Logger
	// Dial opens a connection; nil means TCP. ctx ends after a second.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// PeerStatus is what is known about one peer at one moment.
type PeerStatus struct {
	ID   uint64
	Addr string
	// Connected and since when: of the connection, or of its loss. Before the
	// first connection Since is when the peer was added.
	Connected bool
	Since     time.Time
	// Refusal is the last one since the peer was connected, or nil; RefusedBy says
	// which side refused.
	Refusal   *Refusal
	RefusedBy Side
}

// Transport keeps a connection to every peer, and attaches each to an event loop when it
// is admitted. Its methods are safe for concurrent use.
type Transport struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	inbound chan struct{} // one token for each connection not admitted yet
	strays  strays

	mu     sync.RWMutex
	closed bool
	peers  map[uint64]*remote
	// leaving holds, for peers that were removed, what is closed when their last
	// callback has returned; one that is added again waits for it.
	leaving map[uint64]<-chan struct{}
}

// New starts to accept connections. Nobody is admitted, and nobody dialed, before
// [Transport.SetPeers]. It panics if cfg lacks what is required.
func New(cfg Config) *Transport {
	if cfg.NodeID == 0 || cfg.Listener == nil || cfg.Hello == nil || cfg.Attach == nil {
		panic("peer: New needs NodeID, Listener, Hello and Attach")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
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

// SetPeers replaces the set of peers by addrs, from id to address. This node's own
// id is ignored. New peers are dialed, or may dial; those no longer named are
// disconnected; a changed address counts from the next dial on. An empty address
// is not dialed. It does not wait for any of that, and does nothing after Close.
func (t *Transport) SetPeers(addrs map[uint64]string) {
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
	for id, addr := range addrs {
		if r, ok := t.peers[id]; ok {
			r.setAddr(addr)
		} else if id != t.cfg.NodeID && id != 0 {
			r := newRemote(t, id, addr)
			t.peers[id] = r
			previous := t.leaving[id]
			t.wg.Go(func() { r.run(previous) })
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

// Close closes the listener and all connections and waits for every goroutine and
// every callback. A second call waits too.
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

// left forgets that a removed peer was still winding down.
func (t *Transport) left(r *remote) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving[r.id] == r.done {
		delete(t.leaving, r.id)
	}
}

func (t *Transport) hello() Hello {
	h := t.cfg.Hello()
	h.NodeID = t.cfg.NodeID
	return h
}

func (t *Transport) admit(h Hello) *Refusal {
	if t.cfg.Admit != nil {
		return t.cfg.Admit(h)
	}
	if t.peer(h.NodeID) == nil {
		return Refusalf(RefusedNotMember, "node %d does not know a node %d", t.cfg.NodeID, h.NodeID)
	}
	return nil
}

// refused makes a refusal known, if err is one.
func (t *Transport) refused(err error) bool {
	var e *RefusedError
	if !errors.As(err, &e) {
		return false
	}
	if r := t.peer(e.Peer); r != nil {
		r.noteRefusal(e)
	} else if t.strays.first(e.Peer, e.Refusal.Code) {
		t.cfg.Log.Warn("connection of an unknown node refused", "peer", e.Peer, "refusal", e.Refusal)
	}
	if t.cfg.Refused != nil {
		t.cfg.Refused(e.Peer, e.By, e.Refusal)
	}
	return true
}

func (t *Transport) accept() {
	failing := false
	for {
		conn, err := t.cfg.Listener.Accept()
		switch {
		case t.ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return
		case errors.Is(err, net.ErrClosed):
			t.cfg.Log.Error("peer listener closed by someone else", "err", err)
			return
		case err != nil:
			if !failing {
				t.cfg.Log.Error("peer connections cannot be accepted", "err", err)
			}
			failing = true
			pause(t.ctx, acceptPause)
			continue
		}
		failing = false
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
}

// welcome does the accepting side of a handshake and passes the connection to its peer.
func (t *Transport) welcome(conn net.Conn) {
	s := t.newStream(conn)
	if err := s.open(t.ctx, NewAcceptor(t.hello, t.admit)); err != nil {
		if !t.refused(err) && t.ctx.Err() == nil && !errors.Is(err, io.EOF) && t.strays.first(0, "") {
			t.cfg.Log.Warn("incoming peer connection without a handshake", "addr", conn.RemoteAddr().String(), "err", err)
		}
		return
	}
	if r := t.peer(s.Peer()); r == nil || !r.offer(s) {
		conn.Close()
	}
}

// straysMax bounds what is remembered about unknown nodes, to log each only once.
const straysMax = 64

// strays remembers which strangers were logged.
type strays struct {
	mu   sync.Mutex
	seen map[stray]struct{}
}

type stray struct {
	id   uint64
	code RefusalCode
}

// first reports whether this stranger is new. It forgets all when it is full.
func (s *strays) first(id uint64, code RefusalCode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := stray{id, code}
	if _, ok := s.seen[key]; ok {
		return false
	}
	if s.seen == nil || len(s.seen) == straysMax {
		s.seen = make(map[stray]struct{})
	}
	s.seen[key] = struct{}{}
	return true
}

// pause waits for d, or less when ctx is done; it reports whether it was d.
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
