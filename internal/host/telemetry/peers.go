package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	refusalReasons = [...]string{
		"version", "wrong_node", "not_member", "bad_hello", "wrong_cluster", "settings", "wiped", "stale", "cloned",
		"already_formed", "other_peers", "version_too_old", "removed", "in_use", "stopping", "tls_required", "certificate", other,
	}
	handshakeFailures = [...]string{"untrusted", "expired", "revoked", "name", "clear", "no_tls", "refused", "timeout", "protocol", other}
	refusalSides      = [...]string{"self", "remote"}
	dropReasons       = [...]string{"not_connected", "output_full", "unsendable", other}
)

// peerMetrics is about the other members. set may run concurrently with everything else.
type peerMetrics struct {
	refusals  prometheus.Counter
	refusedBy [len(refusalReasons)][len(refusalSides)]prometheus.Counter
	dropped   [len(dropReasons)]prometheus.Counter
	failed    [len(handshakeFailures)]prometheus.Counter
	// certificateLeft has a series once there is a certificate.
	certificateLeft *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[uint64]bool // the peers that have a series now
	// clocks and lags have a series for each peer for which
	// the value is known.
	connected, secured, output, clocks, lags *prometheus.GaugeVec
}

func newPeerMetrics(r *Registry) *peerMetrics {
	m := &peerMetrics{
		refusals:        r.Counter("peer_refusals_total", "Peers refused in the handshake."),
		seen:            map[uint64]bool{},
		connected:       r.GaugeVec("peer_connected", "Whether the connection to a peer is up: 1 or 0.", "peer"),
		secured:         r.GaugeVec("peer_tls", "Whether the connection to a peer is protected by TLS: 1 or 0. Absent while it is down.", "peer"),
		certificateLeft: r.GaugeVec("peer_certificate_left_seconds", "How long the certificate for peers (PEER_TLS_CERT) is still valid, in seconds; less than 0: it is not. Absent without one."),
		output:          r.GaugeVec("peer_output_bytes", "Bytes that wait to be sent to a peer.", "peer"),
		clocks:          r.GaugeVec("peer_clock_offset_seconds", "A peer's clock minus this node's, in seconds, off by the time on the way.", "peer"),
		lags:            r.GaugeVec("peer_lag_entries", "Entries of the log that a peer is not known to have. On the leader only.", "peer"),
	}
	refusals := r.CounterVec("peer_handshake_refusals_total", "Handshakes between this node and a peer that ended in a refusal, by reason, and by who refused: self or remote.", "reason", "by")
	for i, reason := range refusalReasons {
		for k, side := range refusalSides {
			m.refusedBy[i][k] = refusals.WithLabelValues(reason, side)
		}
	}
	failed := r.CounterVec("peer_handshake_failures_total", "Connections with peers that this node did not open because of TLS, by reason: a certificate that is untrusted, expired, revoked or not that of the node (name); clear (the peer does not use TLS, and dials), no_tls (and is dialed), refused (by the peer), timeout or protocol.", "reason")
	for i, reason := range handshakeFailures {
		m.failed[i] = failed.WithLabelValues(reason)
	}
	dropped := r.CounterVec("peer_messages_dropped_total", "Raft messages to peers that were dropped, by reason: not_connected, output_full (the peer does not read) or unsendable (the peer would refuse it).", "reason")
	for i, reason := range dropReasons {
		m.dropped[i] = dropped.WithLabelValues(reason)
	}
	return m
}

// CountPeerRefused counts a handshake that ended in a refusal. The reason is the code of the
// refusal, other words count as "other"; by is self or remote.
func (m *Metrics) CountPeerRefused(reason, by string) {
	m.peers.refusals.Inc()
	m.peers.refusedBy[find(refusalReasons[:], reason)][find(refusalSides[:], by)].Inc()
}

// CountPeerHandshakeFailed counts a connection with a peer that was not opened because of TLS. Other
// words than the reasons in the metric's help count as "other".
func (m *Metrics) CountPeerHandshakeFailed(reason string) {
	m.peers.failed[find(handshakeFailures[:], reason)].Inc()
}

// SetPeerCertificateLeft says how long the certificate for peers is still valid.
func (m *Metrics) SetPeerCertificateLeft(left time.Duration) {
	m.peers.certificateLeft.WithLabelValues().Set(left.Seconds())
}

// AddMessagesDropped counts messages to peers that were dropped: not_connected, output_full or
// unsendable; other words count as "other".
func (m *Metrics) AddMessagesDropped(reason string, n uint64) {
	m.peers.dropped[find(dropReasons[:], reason)].Add(float64(n))
}

// set gives every peer its series and drops those of peers that are gone.
func (m *peerMetrics) set(peers []PeerStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.seen {
		m.seen[id] = false
	}
	for _, p := range peers {
		m.seen[p.ID] = true
		id := strconv.FormatUint(p.ID, 10)
		m.connected.WithLabelValues(id).Set(oneIf(p.Connected))
		m.output.WithLabelValues(id).Set(float64(p.OutputBytes))
		setIf(m.secured, id, p.Connected, oneIf(p.TLS))
		setIf(m.clocks, id, p.ClockKnown, p.ClockOffset.Seconds())
		setIf(m.lags, id, p.LagKnown, float64(p.Lag))
	}
	for id, present := range m.seen {
		if present {
			continue
		}
		for _, g := range []*prometheus.GaugeVec{m.connected, m.secured, m.output, m.clocks, m.lags} {
			g.DeleteLabelValues(strconv.FormatUint(id, 10))
		}
		delete(m.seen, id)
	}
}

// setIf sets the value for a label, or removes it unless it is known.
func setIf(g *prometheus.GaugeVec, label string, known bool, value float64) {
	if known {
		g.WithLabelValues(label).Set(value)
	} else {
		g.DeleteLabelValues(label)
	}
}
