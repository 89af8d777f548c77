package peer

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

// Handshake is one side's part of the opening of a connection, without I/O, clock
// or timeout. Call Start once, then Step for every frame until Done or an error.
// It is not safe for concurrent use.
type Handshake struct {
	state handshakeState
	own   func() Hello
	admit func(Hello) *Refusal
	want  uint64 // the id that was dialed; 0 on the accepting side
	peer  Hello
	// version is what both sides speak: the dialer chooses.
	version uint16
}

// NewDialer returns the dialing side, for a connection to node want. own gives
// this node's hello and is called when one is about to be sent, no earlier:
// what it says of the log must not be older than anything this node
// acknowledged to that peer. admit decides about the other side; nil admits. version is
// what to speak, up to [Version].
func NewDialer(own func() Hello, want uint64, admit func(Hello) *Refusal, version uint16) *Handshake {
	return &Handshake{state: awaitWelcome, own: own, admit: admit, want: want, version: version}
}

// NewAcceptor returns the accepting side. own and admit are as in [NewDialer].
func NewAcceptor(own func() Hello, admit func(Hello) *Refusal) *Handshake {
	return &Handshake{state: awaitHello, own: own, admit: admit}
}

// Start appends what this side sends first: a hello, or nothing.
func (h *Handshake) Start(b []byte) ([]byte, error) {
	if h.state != awaitWelcome {
		return b, nil
	}
	return AppendHello(b, FrameHello, h.own(), h.version)
}

// Step takes the next frame and appends the answer to b. The answer must be sent
// even when an error is returned: it may be the refusal. Errors are a
// *[RefusedError], or say that the other side broke the protocol; the connection
// is to be closed after any of them.
func (h *Handshake) Step(f Frame, b []byte) ([]byte, error) {
	b, err := h.step(f, b)
	if err != nil {
		h.state = handshakeFailed
	}
	return b, err
}

// Done reports whether both sides have admitted each other.
func (h *Handshake) Done() bool { return h.state == handshakeDone }

// Version returns the version that the two sides speak, once a hello was read.
func (h *Handshake) Version() uint16 { return h.version }

// Peer returns the other side's hello; the zero Hello until one was admitted.
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
		return b, &RefusedError{Peer: max(h.want, h.peer.NodeID), By: Remote, Refusal: r}
	}
	return b, fmt.Errorf("%w: frame type %d during the handshake", ErrProtocol, f.Type)
}

func (h *Handshake) onHello(f Frame, b []byte) ([]byte, error) {
	peer, version, err := ParseHello(f.Payload)
	if err != nil {
		return h.unreadable(b, err)
	}
	h.version = version
	own := h.own()
	r := checkDialer(own, peer)
	if r == nil && h.admit != nil {
		r = h.admit(peer)
	}
	if r != nil {
		return AppendRefusal(b, r), &RefusedError{Peer: peer.NodeID, By: Self, Refusal: r}
	}
	h.peer, h.state = peer, awaitReady
	// A second hello, not the one above: the log may have grown during admission.
	return AppendHello(b, FrameWelcome, h.own(), h.version)
}

func (h *Handshake) onWelcome(f Frame, b []byte) ([]byte, error) {
	peer, version, err := ParseHello(f.Payload)
	if err == nil && version != h.version {
		err = fmt.Errorf("%w: a welcome of version %d for a hello of version %d", ErrProtocol, version, h.version)
	}
	if err != nil {
		return h.unreadable(b, err)
	}
	var r *Refusal
	if peer.NodeID != h.want {
		r = Refusalf(RefusedWrongNode, "dialed node %d, node %d answered", h.want, peer.NodeID)
	} else if h.admit != nil {
		r = h.admit(peer)
	}
	if r != nil {
		return AppendRefusal(b, r), &RefusedError{Peer: h.want, By: Self, Refusal: r}
	}
	h.peer, h.state = peer, handshakeDone
	return AppendReady(b), nil
}

// unreadable answers a hello or welcome that could not be parsed. A stranger that
// does not know the magic gets no answer at all.
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
	return AppendRefusal(b, r), &RefusedError{Peer: h.want, By: Self, Refusal: r}
}

// checkDialer compares the ids of an incoming hello with this node's own.
func checkDialer(own, peer Hello) *Refusal {
	switch {
	case peer.NodeID == own.NodeID && peer.Session == own.Session:
		return Refusalf(RefusedWrongNode, "node %d dialed itself", own.NodeID)
	case peer.NodeID == own.NodeID:
		return Refusalf(RefusedWrongNode, "two nodes have the id %d", own.NodeID)
	case peer.NodeID < own.NodeID:
		return Refusalf(RefusedWrongNode, "node %d dialed node %d: the higher id dials", peer.NodeID, own.NodeID)
	}
	return nil
}
