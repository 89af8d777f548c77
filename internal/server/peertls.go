package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"

	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/node"
)

// openPeerTLS reads the certificates for peers; nil without PEER_TLS_CERT. Then it warns of what
// goes over the network in plaintext, or fails if that was not asked for.
func openPeerTLS(s *config.Settings, join *node.Join, m *telemetry.Metrics, log *slog.Logger) (*node.PeerTLS, error) {
	if s.PeerTLSCert == "" {
		if check := checkPeersInClear(s); join != nil && check != nil {
			if err := check(join.Peers); err != nil {
				return nil, err
			}
		}
		warnClear(s, log)
		return nil, nil
	}
	cfg := peerConfig(s)
	cfg.Log, cfg.Observe = log, m.SetPeerCertificateLeft
	files, err := credential.OpenPeers(cfg)
	if err != nil {
		return nil, err
	}
	if s.PeerInsecure {
		log.Warn("PEER_INSECURE=1 accepts peers in plaintext beside those with TLS; remove it when all nodes have certificates")
	}
	return &node.PeerTLS{Files: files, Names: s.PeerAllowedNames, Optional: s.PeerInsecure}, nil
}

// peerConfig names the files of the certificates for peers.
func peerConfig(s *config.Settings) credential.PeerConfig {
	return credential.PeerConfig{
		CertFile: s.PeerTLSCert, KeyFile: s.PeerTLSKey, CAFile: s.PeerTLSCA, CRLFile: s.PeerTLSCRL,
		Own: func(cert *x509.Certificate) error {
			if slices.Contains(s.PeerAllowedNames.Nodes(cert), s.NodeID) {
				return nil
			}
			return errors.New(node.NameFault(s.PeerAllowedNames, cert, s.NodeID))
		},
	}
}

// warnClear points out what peers in plaintext mean.
func warnClear(s *config.Settings, log *slog.Logger) {
	if s.PeerInsecure {
		log.Warn("peers are in plaintext (PEER_INSECURE=1): whoever can reach RAFT_ADDR can take the place of a node, and so repeat timestamps; set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA")
		return
	}
	host, _, _ := net.SplitHostPort(s.RaftAddr)
	others := maps.Clone(s.Peers)
	delete(others, s.NodeID)
	if ip := net.ParseIP(host); len(others) == 0 && (host == "" || ip != nil && !ip.IsLoopback()) {
		log.Info("peers on other machines are refused until PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA are set, or PEER_INSECURE=1", "raft_addr", s.RaftAddr)
	}
}

// checkPeersInClear returns what refuses peer addresses that may not be used in plaintext; nil if all
// may, or none is.
func checkPeersInClear(s *config.Settings) func(addrs map[uint64]string) error {
	if s.PeerInsecure || s.PeerTLSCert != "" {
		return nil
	}
	return func(addrs map[uint64]string) error {
		if want := s.ClearPeers(addrs); want != "" {
			return fmt.Errorf("PEER_INSECURE (--peer-insecure) is not set: %s", want)
		}
		return nil
	}
}

// runPeerTLS returns what follows the files of p, which may be nil.
func runPeerTLS(p *node.PeerTLS) func(context.Context) {
	if p == nil {
		return func(context.Context) {}
	}
	return p.Files.Run
}
