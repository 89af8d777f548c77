package wire

import (
	"errors"
	"fmt"
)

type handshakeState uint8

const (
	awaitHello handshakeState = iota
	awaitWelcome
	awaitReady
	handshakeDone
	handshakeFailed
)

// Handshake is one side of the handshake, without I/O, clock or timeout. Call Start once,
// then Step for every frame until Done or an error. It is not safe for concurrent use.
type Handshake struct {
	state  handshakeState
	own    func() Hello
	admit  func(Hello) *Refusal
	proven func(id uint64) *Refusal // nil: nothing has to be proven
	dialed uint64                   // the peer's ID; 0 on the accepting side
	peer   Hello
	logID  func(id uint64) uint64
}

// NewDialer returns the dialing side of a connection to the node with the ID peer. own
// returns this node's hello. It is called just before each hello is sent, because the log
// in a hello must not be older than anything this node has acknowledged to that peer.
// admit decides whether to admit the other side; nil admits.
func NewDialer(own func() Hello, peer uint64, admit func(Hello) *Refusal) *Handshake {
	return &Handshake{state: awaitWelcome, own: own, admit: admit, dialed: peer, logID: sameID}
}

// NewAcceptor returns the accepting side. own and admit are as in [NewDialer].
func NewAcceptor(own func() Hello, admit func(Hello) *Refusal) *Handshake {
	return &Handshake{state: awaitHello, own: own, admit: admit, logID: sameID}
}

func sameID(id uint64) uint64 { return id }

// LogID has messages show f(id) for the ID of a node, and returns h.
func (h *Handshake) LogID(f func(id uint64) uint64) *Handshake {
	h.logID = f
	return h
}

// Proven has an acceptor refuse a hello if f refuses its node ID, before it asks own or admit. It
// returns h.
func (h *Handshake) Proven(f func(id uint64) *Refusal) *Handshake {
	h.proven = f
	return h
}

// Start appends what this side sends first: a hello, or nothing.
func (h *Handshake) Start(b []byte) ([]byte, error) {
	if h.state != awaitWelcome {
		return b, nil
	}
	return AppendHello(b, FrameHello, h.own())
}

// Step takes the next frame and appends the answer to b. The caller must send the answer
// even with an error: it may be a refusal. After an error it must close the connection.
// Errors are a *[RefusedError] or a violation of the protocol.
func (h *Handshake) Step(f Frame, b []byte) ([]byte, error) {
	b, err := h.step(f, b)
	if err != nil {
		h.state = handshakeFailed
	}
	return b, err
}

// Done reports whether both sides have admitted each other.
func (h *Handshake) Done() bool { return h.state == handshakeDone }

// Peer returns the other side's hello, or the zero Hello until it is admitted.
func (h *Handshake) Peer() Hello { return h.peer }

func (h *Handshake) step(f Frame, b []byte) ([]byte, error) {
	switch {
	case h.state == awaitHello && f.Type == FrameHello:
		return h.onHello(f, b)
	case h.state == awaitWelcome && f.Type == FrameWelcome:
		return h.onWelcome(f, b)
	case h.state == awaitReady && f.Type == FrameReady && len(f.Payload) == 0:
		h.state = handshakeDone
		return b, nil
	case f.Type == FrameRefusal && (h.state == awaitWelcome || h.state == awaitReady):
		r, err := ParseRefusal(f.Payload)
		if err != nil {
			return b, err
		}
		return b, &RefusedError{Peer: max(h.dialed, h.peer.NodeID), By: Remote, Refusal: r}
	}
	return b, fmt.Errorf("%w: frame type %d during the handshake", ErrProtocol, f.Type)
}

func (h *Handshake) onHello(f Frame, b []byte) ([]byte, error) {
	peer, err := ParseHello(f.Payload)
	if err != nil {
		return h.unreadable(b, err)
	}
	if h.proven != nil {
		if r := h.proven(peer.NodeID); r != nil {
			return AppendRefusal(b, r), &RefusedError{Peer: peer.NodeID, By: Self, Refusal: r}
		}
	}
	own := h.own()
	r := h.checkDialer(own, peer)
	if (r == nil || peer.NodeID < own.NodeID) && h.admit != nil {
		// A node that nobody dials any more asks why; see Transport.Ask in internal/host/peer.
		if refusal := h.admit(peer); refusal != nil {
			r = refusal
		}
	}
	if r != nil {
		return AppendRefusal(b, r), &RefusedError{Peer: peer.NodeID, By: Self, Refusal: r}
	}
	h.peer, h.state = peer, awaitReady
	// Not own from above: the log may have grown during admission.
	return AppendHello(b, FrameWelcome, h.own())
}

func (h *Handshake) onWelcome(f Frame, b []byte) ([]byte, error) {
	peer, err := ParseHello(f.Payload)
	if err != nil {
		return h.unreadable(b, err)
	}
	var r *Refusal
	if peer.NodeID != h.dialed {
		r = Refusalf(RefusedWrongNode, "dialed node %d, node %d answered", h.logID(h.dialed), h.logID(peer.NodeID))
		if h.logID(h.dialed) == h.logID(peer.NodeID) {
			r = Refusalf(RefusedWrongNode, "dialed node %d, the same node with another data directory answered", h.logID(h.dialed))
		}
	} else if h.admit != nil {
		r = h.admit(peer)
	}
	if r != nil {
		return AppendRefusal(b, r), &RefusedError{Peer: h.dialed, By: Self, Refusal: r}
	}
	h.peer, h.state = peer, handshakeDone
	return AppendReady(b), nil
}

// unreadable answers a hello or welcome that could not be parsed. A stranger that
// does not send the magic gets no answer.
func (h *Handshake) unreadable(b []byte, err error) ([]byte, error) {
	var r *Refusal
	var version *VersionError
	switch {
	case errors.As(err, &version):
		r = &Refusal{Code: RefusedVersion, Message: fmt.Sprintf(
			"the refused node speaks peer protocol version %d, the refusing node version %d", version.Theirs, version.Ours)}
	case errors.Is(err, ErrClientAddr):
		r = &Refusal{Code: RefusedHello, Message: err.Error()}
	default:
		return b, err
	}
	return AppendRefusal(b, r), &RefusedError{Peer: h.dialed, By: Self, Refusal: r}
}

// checkDialer compares the ID and session in a dialer's hello with this node's.
func (h *Handshake) checkDialer(own, peer Hello) *Refusal {
	id, other := h.logID(own.NodeID), h.logID(peer.NodeID)
	switch {
	case peer.NodeID == own.NodeID && peer.Session == own.Session:
		return Refusalf(RefusedWrongNode, "node %d dialed itself", id)
	case peer.NodeID == own.NodeID:
		return Refusalf(RefusedWrongNode, "two nodes have the ID %d", id)
	case peer.NodeID < own.NodeID:
		return Refusalf(RefusedWrongNode, "node %d dialed node %d: the higher ID dials", other, id)
	}
	return nil
}
