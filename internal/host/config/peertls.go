package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/auth/certname"
)

// peerTLS parses how connections with peers are protected.
func (p *parser) peerTLS(f *Flags, s *Settings) {
	s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA, s.PeerTLSCRL = f.PeerTLSCert, f.PeerTLSKey, f.PeerTLSCA, f.PeerTLSCRL
	s.PeerInsecure = p.onOff("peer-insecure", f.PeerInsecure)
	var faults []certname.Fault
	s.PeerAllowedNames, faults = certname.Parse(f.PeerAllowedNames)
	for _, fault := range faults {
		p.faults.add("peer-allowed-names", fault.Entry, fault.Want)
	}
	files := []struct{ flag, value string }{{"peer-tls-cert", f.PeerTLSCert}, {"peer-tls-key", f.PeerTLSKey}, {"peer-tls-ca", f.PeerTLSCA}}
	set := 0
	for _, file := range files {
		if file.value != "" {
			set++
		}
	}
	for _, file := range files {
		if file.value == "" && set > 0 {
			p.faults.add(file.flag, "", "want a file: PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA need each other")
		}
	}
	if set == 0 && f.PeerTLSCRL != "" {
		p.faults.add("peer-tls-crl", f.PeerTLSCRL, "want PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA as well: without them no certificate is looked at")
	}
	if set == 0 && f.PeerAllowedNames != "" {
		p.faults.add("peer-allowed-names", f.PeerAllowedNames, "want PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA as well: without them no certificate is looked at")
	}
}

// PeersInClear returns a [Faults] if the settings name peers on other machines, and neither TLS
// nor PEER_INSECURE. It is for nodes that are about to start, and not part of [Flags.Parse], as
// other commands have the same settings and no peers. Peers that only the cluster or DNS names are
// checked by [Settings.ClearPeers] when they are known. A node without peers may listen anywhere.
func (s *Settings) PeersInClear() error {
	others := maps.Clone(s.Peers)
	delete(others, s.NodeID)
	var faults Faults
	switch {
	case len(others) > 0 && s.ClearPeers(s.Peers) != "":
		faults.add("peers", joinPeers(s.Peers), s.ClearPeers(s.Peers))
	case len(others) > 0 || s.Join != nil || s.PeersSRV != nil:
		if want := s.ClearPeers(map[uint64]string{s.NodeID: s.RaftAddr}); want != "" {
			faults.add("raft-addr", s.RaftAddr, want)
		}
	}
	if faults == nil {
		return nil
	}
	return faults
}

func joinPeers(peers map[uint64]string) string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, fmt.Sprintf("%d=%s", id, peers[id]))
	}
	return strings.Join(list, ",")
}

// ClearPeers says what to do if connections with these peers (addresses by ID) would be in plaintext
// without having been allowed to; else it returns "".
func (s *Settings) ClearPeers(peers map[uint64]string) string {
	if s.PeerInsecure || s.PeerTLSCert != "" {
		return ""
	}
	var remote []string
	for _, addr := range peers {
		if !isLoopback(addr) {
			remote = append(remote, addr)
		}
	}
	if remote == nil {
		return ""
	}
	slices.Sort(remote)
	return fmt.Sprintf("peers on other machines (%s) need TLS: want PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA (isotone cert makes the files), "+
		"or PEER_INSECURE=1 to leave the connections between nodes in plaintext, as they were before; docs/security.md says how to change a running cluster",
		strings.Join(remote[:min(len(remote), 3)], ", "))
}

// isLoopback reports whether addr (host:port) is on this machine. A malformed one has a fault of
// its own.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
