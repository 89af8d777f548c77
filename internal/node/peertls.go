package node

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/certname"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/secure"
)

// PeerTLS is TLS with certificates on both sides of the connections between members.
type PeerTLS struct {
	// Files has the certificates. Whoever opened them follows them.
	Files *credential.Peers
	// Names say which node a certificate is for.
	Names certname.Rules
	// Optional: nodes may join without a proof, as peers in plaintext are accepted as well (PEER_INSECURE).
	Optional bool

	// proofs is held while a proof is verified, so that strangers take one processor at most. proving counts the proofs
	// under verification, and those that wait.
	proofs  sync.Mutex
	proving atomic.Int32
}

// provingMax bounds proving: some ten milliseconds of work.
const provingMax = 64

// mayJoin returns nil if a node may be told how to join: proof has its signature. The error matches isotone.ErrForbidden, or
// isotone.ErrOverloaded. It is safe for concurrent use.
func (p *PeerTLS) mayJoin(node, incarnation uint64, proof string) error {
	if p == nil || p.Optional && proof == "" {
		return nil
	}
	if proof == "" {
		return isotone.Errorf(isotone.CodeForbidden, "a node joins this cluster with its certificate for peers: set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA, and use this version")
	}
	defer p.proving.Add(-1)
	if p.proving.Add(1) > provingMax {
		return isotone.Errorf(isotone.CodeOverloaded, "too many proofs of nodes that want to join are waiting; try again")
	}
	p.proofs.Lock()
	defer p.proofs.Unlock()
	cert, err := p.Files.Proven(proof, front.JoinMessage(node, incarnation))
	if err != nil {
		return isotone.Errorf(isotone.CodeForbidden, "the proof of node %d is refused: %v", node, err)
	}
	if err := p.bound(cert, node); err != nil {
		return isotone.Errorf(isotone.CodeForbidden, "the proof of node %d is refused: %v", node, err)
	}
	return nil
}

// security returns what the transport protects connections with; nil without TLS.
func (p *PeerTLS) security(log *slog.Logger) peer.Security {
	if p == nil {
		return nil
	}
	return &peerSecurity{PeerTLS: p, log: log, logged: map[string]time.Time{}}
}

// peerSecurity implements peer.Security. It is safe for concurrent use.
type peerSecurity struct {
	*PeerTLS
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]time.Time // when an incoming handshake last failed for a reason, and that was logged
}

// failureLogEvery is the least time between two log lines about incoming handshakes that fail for
// the same reason, of which there are a few: strangers must not fill the log.
const failureLogEvery = time.Minute

// securedConn implements peer.Secured, until it enters the loop.
type securedConn struct {
	*secure.Channel
	security *peerSecurity
	// identity is nil until the first Check of an accepted connection.
	identity *credential.Identity
}

// Client does the handshake of a dialed connection; see peer.Security.
func (s *peerSecurity) Client(conn net.Conn, id uint64) (peer.Secured, error) {
	c := &securedConn{security: s}
	c.Channel = secure.Client(conn, s.Files.Client(func(i *credential.Identity) error {
		c.identity = i
		return s.bound(i.Leaf(), id)
	}))
	err := c.Handshake()
	var bad *credential.CertificateError
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &bad):
		return nil, refuseCertificate(id, bad)
	case !c.Heard() && endsAtOnce(err):
		return nil, fmt.Errorf("%w: has it PEER_TLS_CERT? %w", peer.ErrNoTLS, err)
	}
	return nil, fmt.Errorf("TLS handshake: %w", err)
}

// endsAtOnce reports whether err is what a node says to TLS that does not know it.
func endsAtOnce(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Server does the handshake of an accepted connection; see peer.Security.
func (s *peerSecurity) Server(conn net.Conn, read []byte) (peer.Secured, error) {
	c := &securedConn{Channel: secure.Server(conn, read, s.Files.Server()), security: s}
	err := c.Handshake()
	if err == nil && c.ConnectionState().NegotiatedProtocol != credential.PeerProtocol {
		err = errors.New("the other side does not speak the peer protocol")
	}
	if err != nil {
		err = fmt.Errorf("TLS handshake: %w", err)
		s.logFailure(conn, err)
		return nil, err
	}
	return c, nil
}

// logFailure logs why an incoming handshake has failed, from time to time.
func (s *peerSecurity) logFailure(conn net.Conn, err error) {
	reason, now := handshakeFailure(err), time.Now()
	s.mu.Lock()
	last, known := s.logged[reason]
	due := !known || now.Sub(last) >= failureLogEvery
	if due {
		s.logged[reason] = now
	}
	s.mu.Unlock()
	if due {
		s.log.Warn("TLS handshake of an incoming peer connection failed", "addr", conn.RemoteAddr().String(), "reason", reason, "err", err)
	}
}

// Check decides by the certificate whether the other side may be a member; see peer.Secured.
func (c *securedConn) Check(id uint64) *wire.Refusal {
	var err error
	if c.identity == nil {
		c.identity, err = c.security.Files.Identify(c.ConnectionState().PeerCertificates, x509.ExtKeyUsageClientAuth)
	} else {
		err = c.identity.Check()
	}
	if err == nil {
		err = c.security.bound(c.identity.Leaf(), id)
	}
	var bad *credential.CertificateError
	if errors.As(err, &bad) {
		return refuseCertificate(id, bad)
	}
	return nil
}

// bound returns nil if a certificate is that of a member's node.
func (p *PeerTLS) bound(cert *x509.Certificate, id uint64) error {
	if slices.Contains(p.Names.Nodes(cert), oracle.NodeOf(id)) {
		return nil
	}
	return &credential.CertificateError{Reason: credential.ReasonName, Message: NameFault(p.Names, cert, oracle.NodeOf(id))}
}

// NameFault says that a certificate is not that of a node, and what it would have to be.
func NameFault(names certname.Rules, cert *x509.Certificate, node uint64) string {
	has := strings.Join(certname.Names(cert), ", ")
	if has == "" {
		has = "no name (the common name does not count)"
	}
	return fmt.Sprintf("the certificate has %.300s, which is not the name of node %d by PEER_ALLOWED_NAMES: want %.300s", has, node, names)
}

// refuseCertificate returns the refusal of a member's certificate. It begins with the reason, by
// which refusedFor finds it.
func refuseCertificate(id uint64, e *credential.CertificateError) *wire.Refusal {
	return wire.Refusalf(wire.RefusedCertificate, "%s: of node %d: %s", e.Reason, oracle.NodeOf(id), e.Message)
}

// refusedFor returns the reason of a refusal by this node as the label of a metric.
func refusedFor(r *wire.Refusal) string {
	if r.Code == wire.RefusedClear {
		return "clear"
	}
	reason, _, _ := strings.Cut(r.Message, ":")
	return reason
}

// handshakeFailure returns why a TLS handshake failed as the label of a metric.
func handshakeFailure(err error) string {
	var remote *net.OpError
	switch {
	case errors.Is(err, peer.ErrNoTLS):
		return "no_tls"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &remote) && remote.Op == "remote error":
		return "refused"
	}
	return "protocol"
}
