package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/config"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/telemetry"
)

// drainTimeout bounds how long a node that stops waits for requests under way.
const drainTimeout = 5 * time.Second

// member is one node with its fronts.
type member struct {
	node   *node.Node
	fronts *fronts
	addr   string // client address as told to others
	// served is closed when the front has ended, after serveErr was set.
	served   chan struct{}
	serveErr error
	handOver time.Duration
}

// sockets are what a member listens on.
type sockets struct {
	http net.Listener
	quic net.PacketConn
	peer net.Listener
}

// listen opens the sockets of a member. With port 0 the TCP port is any free one, and
// UDP gets the same number.
func listen(s *config.Settings) (sockets, error) {
	var so sockets
	var err error
	if so.http, err = net.Listen("tcp", s.HTTPAddr()); err != nil {
		return sockets{}, fmt.Errorf("HTTP_PORT: %w (is another process using it?)", err)
	}
	port := so.http.Addr().(*net.TCPAddr).Port
	if so.quic, err = net.ListenPacket("udp", net.JoinHostPort(s.HTTPHost, strconv.Itoa(port))); err != nil {
		return sockets{}, errors.Join(fmt.Errorf("HTTP_PORT, for HTTP/3: %w", err), so.http.Close())
	}
	if so.peer, err = net.Listen("tcp", s.RaftAddr); err != nil {
		return sockets{}, errors.Join(fmt.Errorf("RAFT_ADDR: %w (is another process using it?)", err), so.http.Close(), so.quic.Close())
	}
	return so, nil
}

func (so sockets) close() error {
	return errors.Join(so.http.Close(), so.quic.Close(), so.peer.Close())
}

// memberOptions is what a member is told beside its settings.
type memberOptions struct {
	clock          node.Clock // nil for the system's
	loops          int
	keepProcessors bool // GOMAXPROCS has one more for each loop
}

// startMember runs a node on the given sockets, which it owns from here on.
func startMember(s *config.Settings, so sockets, o memberOptions, log *slog.Logger) (*member, error) {
	peers, err := s.PeerMap()
	if err != nil {
		return nil, errors.Join(err, so.close())
	}
	mode, err := isotone.ParseReadMode(s.ReadMode)
	if err != nil {
		return nil, errors.Join(err, so.close())
	}
	addr := s.Advertise(so.http.Addr().(*net.TCPAddr).Port)
	tlsConfig, err := loadTLS(s, addr)
	if err != nil {
		return nil, errors.Join(err, so.close())
	}
	warnAddresses(s, addr, peers, log)
	metrics := telemetry.NewMetrics(version)
	m := &member{
		addr:   addr,
		served: make(chan struct{}),
		// An election that fails and is repeated takes up to 80 ticks.
		handOver: max(time.Second, 100*s.RTTMS.Milliseconds()),
	}
	m.node, err = node.Start(node.Config{
		NodeID:                s.NodeID.Uint64(),
		Peers:                 peers,
		PeerListener:          so.peer,
		ClientAddr:            m.addr,
		DataDir:               s.DataDir,
		EpochInterval:         s.EpochIntervalMS.Milliseconds(),
		ReservationsMissedMax: s.EpochDeadlineLimit.Int(),
		RequestsMax:           s.TimestampRequestBuffer.Int(),
		Tick:                  s.RTTMS.Milliseconds(),
		Loops:                 o.loops,
		KeepProcessors:        o.keepProcessors,
		Mode:                  mode,
		Clock:                 o.clock,
		Log:                   log,
		Metrics:               metrics,
	})
	if err != nil {
		return nil, errors.Join(err, so.http.Close(), so.quic.Close())
	}
	m.fronts = &fronts{node: m.node}
	m.fronts.web = web.New(web.Config{
		Backend: m.node, Metrics: metrics.Handler(), TLS: tlsConfig, Observe: metrics.ObserveRequest, Log: log,
		Elsewhere: m.fronts.elsewhere(nil),
	})
	go func() {
		defer close(m.served)
		m.serveErr = m.fronts.serve(so, mode, metrics)
	}()
	return m, nil
}

// loadTLS reads the certificate. If none was set, a self-signed one is written beside
// the data.
func loadTLS(s *config.Settings, addr string) (*tls.Config, error) {
	hosts := []string{}
	if host, _, err := net.SplitHostPort(addr); err == nil {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	certFile, keyFile, set := s.TLSFiles()
	load := func() (tls.Certificate, error) {
		if set {
			return web.LoadCertificate(certFile, keyFile, time.Now())
		}
		if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
			return tls.Certificate{}, err
		}
		return web.LoadOrCreateCertificate(certFile, keyFile, hosts, time.Now())
	}
	cert, err := load()
	if err != nil {
		return nil, fmt.Errorf("TLS_CERT, TLS_KEY: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// warnAddresses points out settings that are valid and hardly meant.
func warnAddresses(s *config.Settings, addr string, peers map[uint64]string, log *slog.Logger) {
	local := func(hostport string) bool {
		host, _, _ := net.SplitHostPort(hostport)
		ip := net.ParseIP(host)
		return host == "localhost" || ip != nil && ip.IsLoopback()
	}
	for _, peer := range peers {
		if local(addr) && !local(peer) {
			log.Warn("other hosts are told a client address that only this host can reach; set ADVERTISE_ADDR", "advertise", addr)
			break
		}
	}
	_, own, _ := net.SplitHostPort(peers[s.NodeID.Uint64()])
	if _, port, _ := net.SplitHostPort(s.RaftAddr); port != "0" && port != own {
		log.Warn("RAFT_ADDR and this node's entry in PEERS have different ports", "raft_addr", s.RaftAddr, "peers", peers[s.NodeID.Uint64()])
	}
}

// wait returns when ctx ends, with nil, or when the member cannot go on.
func (m *member) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.node.Failed():
		return m.node.Err()
	case <-m.served:
		return fmt.Errorf("serve clients: %w", m.serveErr)
	}
}

// stop hands leadership over, lets requests under way finish, and ends the member.
func (m *member) stop(log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), m.handOver)
	defer cancel()
	if err := m.node.HandOver(ctx); err != nil {
		log.Warn("stopping without handing leadership over", "err", err)
	}
	return m.close()
}

// close ends the member without handing leadership over.
func (m *member) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := m.fronts.stop(ctx)
	<-m.served
	return errors.Join(err, m.node.Close())
}
