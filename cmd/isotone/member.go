package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/isotone/isotone/internal/dashboard"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/access"
	"github.com/isotone/isotone/internal/host/address"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/credential"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/node"
)

// drainTimeout bounds how long a node that stops waits for requests under way.
const drainTimeout = 5 * time.Second

// releaseTimeout bounds how long a node that stops waits for the cluster to take its
// worker ids back.
const releaseTimeout = time.Second

// member is one node with its fronts.
type member struct {
	node   *node.Node
	fronts *fronts
	docs   *documents
	addr   string // client address as told to others
	// served is closed when the front has ended, after serveErr was set.
	served          chan struct{}
	serveErr        error
	steps           node.Steps // see memberOptions
	transferTimeout time.Duration
	shutdownDelay   time.Duration
	redirectTime    time.Duration
	asked           chan struct{} // closed by drain
	askOnce         sync.Once
	thrift          *thriftrpc.Server // nil without a listener
	thriftEnded     func() error
	thriftAddr      string // "" without a listener
	// forwarding is nil unless FORWARD is set.
	forwarding *forwarding
	// unfollow ends following the files of the certificate, and waits for that.
	unfollow func()
	admin    *adminServer    // nil without ADMIN_ADDR
	metrics  *adminServer    // nil without METRICS_ADDR
	operator *adminServer    // of the Unix socket; nil where none can be made
	trace    *trace.Exporter // nil without TRACE_ENDPOINT
	// close ends the member without transferring leadership, once, and waits for that.
	close func() error
}

// sockets are what a member listens on.
type sockets struct {
	http net.Listener
	quic net.PacketConn
	peer net.Listener
	// thrift is nil when nobody has asked for a port and the default one is taken.
	thrift net.Listener
	admin  net.Listener // nil without ADMIN_ADDR
	// metrics is nil without METRICS_ADDR.
	metrics net.Listener
}

// listen opens the sockets of a member. With port 0 the TCP port is any free one, and
// UDP gets the same number.
func listen(s *config.Settings) (sockets, error) {
	var so sockets
	var err error
	if so.http, err = net.Listen("tcp", s.HTTPAddr()); err != nil {
		return sockets{}, fmt.Errorf("HTTP_PORT: %w", err)
	}
	port := so.http.Addr().(*net.TCPAddr).Port
	if so.quic, err = net.ListenPacket("udp", net.JoinHostPort(s.HTTPHost, strconv.Itoa(port))); err != nil {
		return sockets{}, errors.Join(fmt.Errorf("HTTP_PORT, for HTTP/3: %w", err), so.http.Close())
	}
	if so.peer, err = listenPeers(s.RaftAddr); err != nil {
		return sockets{}, errors.Join(fmt.Errorf("RAFT_ADDR: %w", err), so.http.Close(), so.quic.Close())
	}
	if so.thrift, err = listenThrift(s); err != nil {
		return sockets{}, errors.Join(err, so.close())
	}
	if so.admin, err = listenAdmin("ADMIN_ADDR", s.AdminAddr); err != nil {
		return sockets{}, errors.Join(err, so.close())
	}
	if so.metrics, err = listenAdmin("METRICS_ADDR", s.MetricsAddr); err != nil {
		return sockets{}, errors.Join(err, so.close())
	}
	return so, nil
}

// listenPeers listens on addr. Where nothing resolves localhost, as in an empty container,
// it is 127.0.0.1 (RFC 6761 §6.3).
func listenPeers(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if host, port, _ := net.SplitHostPort(addr); host == "localhost" && errors.As(err, new(*net.DNSError)) {
		return net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	}
	return ln, err
}

// taken adds a hint to the error of a listener whose address another one has.
func taken(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (is another process using it?)", err)
	}
	return err
}

func (so sockets) close() error {
	return errors.Join(so.closeFronts(), so.peer.Close())
}

// alone reports whether all addresses are loopback addresses, so that nobody elsewhere can connect.
func (so sockets) alone() bool {
	all := []net.Addr{so.http.Addr(), so.quic.LocalAddr(), so.peer.Addr()}
	for _, l := range []net.Listener{so.thrift, so.admin, so.metrics} {
		if l != nil {
			all = append(all, l.Addr())
		}
	}
	return !slices.ContainsFunc(all, func(a net.Addr) bool {
		at, err := netip.ParseAddrPort(a.String())
		return err != nil || !at.Addr().Unmap().IsLoopback()
	})
}

// waiting returns where a node answers that is no member yet: the ports of clients and of
// monitoring.
func (so sockets) waiting() []net.Listener {
	if so.metrics == nil {
		return []net.Listener{so.http}
	}
	return []net.Listener{so.http, so.metrics}
}

// closeFronts closes all but the one that the node has.
func (so sockets) closeFronts() error {
	err := errors.Join(so.http.Close(), so.quic.Close())
	for _, l := range []net.Listener{so.thrift, so.admin, so.metrics} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// memberOptions is what a member is told beside its settings.
type memberOptions struct {
	id             uint64     // of the member; 0: as in the settings
	join           *node.Join // nil unless it joins a cluster
	clock          node.Clock // nil for the system's
	steps          node.Steps // nil but in builds for tests
	level          uint64     // 0 but in builds for tests: see node.Config
	loops          int
	keepProcessors bool           // GOMAXPROCS has one more for each loop
	files          uint64         // that may be open; 0: unknown
	log            *telemetry.Log // whose dropped lines are counted; nil counts none
}

// startMember runs a node on the given sockets, which it owns from here on.
func startMember(s *config.Settings, so sockets, o memberOptions, log *slog.Logger) (*member, error) {
	peers, assumed, ids := s.PeerMap(), s.Peers == nil, idConfig(s)
	if host, port, _ := net.SplitHostPort(s.RaftAddr); assumed && port == "0" && !address.Unspecified(s.RaftAddr) {
		// Any free port, another one at each start: the record has to follow it as it follows PEERS.
		peers[s.NodeID] = net.JoinHostPort(host, strconv.Itoa(so.peer.Addr().(*net.TCPAddr).Port))
		assumed = false
	}
	addr := s.Advertise(so.http.Addr().(*net.TCPAddr).Port)
	metrics := telemetry.NewMetrics(version)
	if o.log != nil {
		o.log.Watch(metrics.Registry())
	}
	f, err := openMemberFiles(s, so.alone(), addr, o.join, metrics, log)
	if err != nil {
		return nil, errors.Join(err, so.close())
	}
	warnAddresses(s, addr, peers, log)
	m := &member{
		addr: addr, steps: o.steps, served: make(chan struct{}), asked: make(chan struct{}), shutdownDelay: s.ShutdownDelay, redirectTime: redirectTime,
		// An election that fails and is repeated takes up to 80 ticks. Limits of the cluster clock have to pass
		// before; that is waited for up to twice their length and 20 ticks.
		transferTimeout: max(time.Second, 100*s.RTT) + 2*s.Interval,
	}
	m.close = sync.OnceValue(m.end)
	var forwarder func(func()) node.Forwarder
	if s.Forward {
		if m.forwarding, err = forwardFrom(s, addr, log); err != nil {
			return nil, errors.Join(err, so.close())
		}
		forwarder = m.forwarding.forwarder
	}
	m.trace = startTracing(s.TraceEndpoint, s.TraceSample, "isotone", strconv.FormatUint(s.NodeID, 10), metrics.Registry(), log)
	m.node, err = node.Start(node.Config{
		NodeID:                cmp.Or(o.id, s.NodeID),
		Peers:                 peers,
		PeersAssumed:          assumed,
		Join:                  o.join,
		Priority:              s.Priority,
		PeerListener:          so.peer,
		PeerTLS:               f.peers,
		PeerInsecure:          s.PeerInsecure,
		CheckPeers:            checkPeersInClear(s),
		ClientAddr:            m.addr,
		DataDir:               s.DataDir,
		EpochInterval:         s.EpochInterval,
		ClockJumpMax:          s.ClockJumpMax,
		Interval:              s.Interval,
		ReservationsMissedMax: s.EpochDeadlineLimit,
		RequestsMax:           s.TimestampRequestBuffer,
		Tick:                  s.RTT,
		Loops:                 o.loops,
		KeepProcessors:        o.keepProcessors,
		Mode:                  s.ReadMode,
		IDs:                   ids,
		Forward:               forwarder,
		Clock:                 o.clock,
		Level:                 o.level,
		Steps:                 o.steps,
		Log:                   log,
		Metrics:               metrics,
		Trace:                 m.trace,
	})
	if err != nil {
		m.trace.Close()
		return nil, errors.Join(err, so.closeFronts(), m.forwarding.close())
	}
	m.forwarding.of(m.node.Status)
	m.followFiles(f.clients.Run, f.users.Run, runPeerTLS(f.peers))
	if m.docs, err = newDocuments(s, m.node, addr, metrics, log); err != nil {
		m.unfollow()
		m.trace.Close()
		return nil, errors.Join(err, m.node.Close(), so.closeFronts(), m.forwarding.close())
	}
	m.startFronts(s, so, f, metrics, o, log)
	return m, nil
}

// memberFiles is what a member reads from files that may change while it runs.
type memberFiles struct {
	clients *credential.Reloader // the certificate that clients see
	users   *access.Control
	peers   *node.PeerTLS // nil: in plaintext
}

// openMemberFiles reads them.
func openMemberFiles(s *config.Settings, alone bool, addr string, join *node.Join, metrics *telemetry.Metrics, log *slog.Logger) (f memberFiles, err error) {
	if f.clients, err = openTLS(s, addr, metrics, log); err != nil {
		return f, err
	}
	if f.users, err = access.Open(access.Config{File: s.ACLFile, Setting: "ACL_FILE", Anonymous: s.Anonymous, Alone: alone, Revoked: f.clients.Revoked, Log: log}); err != nil {
		return f, err
	}
	f.clients.OnChange(f.users.Renew)
	warnAllRoles(s, log)
	tellOperators(s, alone, log)
	f.peers, err = openPeerTLS(s, join, metrics, log)
	return f, err
}

// forwardFrom starts what a node at addr forwards requests with.
func forwardFrom(s *config.Settings, addr string, log *slog.Logger) (*forwarding, error) {
	out, err := outward(s)
	if err != nil {
		return nil, err
	}
	return startForwarding(addr, out, log)
}

// startFronts serves clients and operators. The node and the documents run.
func (m *member) startFronts(s *config.Settings, so sockets, f memberFiles, metrics *telemetry.Metrics, o memberOptions, log *slog.Logger) {
	page, stats := optional(s, m.docs, metrics, log)
	secure := f.clients.TLS("h2", "http/1.1")
	limits := limitConnections(s.MaxConnections, so.thrift != nil, o.files, log)
	f.users.Share(access.ClientPool, limits.client)
	f.users.Share(access.ThriftPool, limits.thrift)
	m.fronts = newFronts(frontsConfig{
		server: m.node,
		web: web.Config{
			Backend: m.node, IDs: m.node.IDs(-1), Clock: m.node.Clock(), Live: m.docs, Page: page, Metrics: metrics.Handler(), Operator: m.node, Carrier: m.node,
			Drain: m.drain, Admin: admin.New(admin.Config{Operator: m.node, Security: func() front.Security { return describeSecurity(s, f) }}).Serve, Mode: s.ReadMode, TLS: secure, Access: f.users,
			Limits: web.Limits{ConnectionsMax: limits.client}, Observe: metrics.ObserveRequest, Log: log,
		},
		ids:     func(i int) front.IDs { return m.node.IDs(i) },
		live:    m.docs.answer,
		observe: metrics.ObserveRequests,
		stats:   stats,
		trace:   m.trace,

		tlsRequired: s.RequireTLS,
	})
	if so.thrift != nil {
		m.thriftAddr = so.thrift.Addr().String()
	}
	m.thrift, m.thriftEnded = serveThrift(so.thrift, m.node, thriftrpc.Config{
		TLS: secure, TLSRequired: s.RequireTLS, Access: f.users, Limits: thriftrpc.Limits{ConnectionsMax: limits.thrift},
		Observe: metrics.ObserveThrift, Log: log,
	})
	m.fronts.watchConnections(metrics.Registry(), m.thrift)
	m.node.OperateBy(m.fronts.web.Carried)
	m.operator = startOperator(s.DataDir, nodeAdmin(f.users, metrics.Handler(), m.fronts.web.Handler()), m.fronts.web.Handler(), log)
	m.admin = startAdmin(so.admin, nodeAdmin(f.users, metrics.Handler(), m.fronts.web.Handler()), log)
	m.metrics = startAdmin(so.metrics, nodeMetrics(metrics.Handler(), m.fronts.web.Handler()), log)
	go func() {
		defer close(m.served)
		m.serveErr = m.fronts.serve(so.http, so.quic)
	}()
}

// optional returns the dashboard and the measurement of requests, each nil unless it is set.
func optional(s *config.Settings, d *documents, m *telemetry.Metrics, log *slog.Logger) (page http.Handler, stats *requestStats) {
	if s.Dashboard {
		page = dashboard.Handler(dashboard.Config{State: d.own.Latest})
	}
	if s.RequestStats {
		stats = newRequestStats(s.RequestStatsSample, m.NewRequestStats(), log)
	}
	return page, stats
}

// openTLS reads the certificate. If none was set, a self-signed one is written beside the
// data.
func openTLS(s *config.Settings, addr string, m *telemetry.Metrics, log *slog.Logger) (*credential.Reloader, error) {
	hosts := []string{}
	if host, _, err := net.SplitHostPort(addr); err == nil {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	certFile, keyFile, set := s.TLSFiles()
	if !set {
		if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("DATA_DIR: %w", err)
		}
	}
	return credential.Open(credential.Config{
		CertFile: certFile, KeyFile: keyFile, CertSetting: "TLS_CERT", KeySetting: "TLS_KEY", SelfSigned: !set, Hosts: hosts,
		ClientCAFile: s.TLSClientCA, ClientCASetting: "TLS_CLIENT_CA", ClientCRLFile: s.TLSClientCRL, ClientCRLSetting: "TLS_CLIENT_CRL", Log: log, Observe: m.SetCertificateLeft,
	})
}

// followFiles has the certificate replaced when its files are.
func (m *member) followFiles(follow ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for _, run := range follow {
		ended.Go(func() { run(ctx) })
	}
	m.unfollow = func() {
		cancel()
		ended.Wait()
	}
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
	if local(s.RaftAddr) && !local(peers[s.NodeID]) {
		log.Warn("this node listens for peers where only this machine reaches it, unless something forwards connections; set RAFT_ADDR", "raft_addr", s.RaftAddr, "peers", peers[s.NodeID])
	}
	_, own, _ := net.SplitHostPort(peers[s.NodeID])
	if _, port, _ := net.SplitHostPort(s.RaftAddr); port != "0" && port != own {
		log.Warn("RAFT_ADDR and this node's entry in PEERS have different ports", "raft_addr", s.RaftAddr, "peers", peers[s.NodeID])
	}
}

// wait returns when ctx ends or the member is asked to drain, with nil, or when the member
// cannot go on.
func (m *member) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.asked:
		return nil
	case <-m.node.Failed():
		return m.node.Err()
	case <-m.served:
		if err := m.node.Err(); err != nil {
			return err // it ended the fronts, too
		}
		return fmt.Errorf("serve clients: %w", m.serveErr)
	}
}

// end is close.
func (m *member) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if m.node.Status().Role == "leader" {
		// It has nothing to forward, and would wait for the connection to itself.
		_ = m.forwarding.close()
	}
	m.docs.close()
	err := m.fronts.stop(ctx)
	<-m.served
	reached(m.steps, "requests finished")
	if m.thrift != nil {
		if stopErr := m.thrift.Shutdown(ctx); !errors.Is(stopErr, context.DeadlineExceeded) {
			err = errors.Join(err, stopErr)
		}
		err = errors.Join(err, m.thriftEnded())
	}
	release, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = m.node.ReleaseWorkers(release) // without a quorum their leases run out by themselves
	reached(m.steps, "workers released")
	m.operator.close() // while the directory is locked
	err = errors.Join(err, m.node.Close())
	reached(m.steps, "node closed")
	err = errors.Join(err, m.forwarding.close())
	m.fronts.wait()
	m.unfollow()
	m.trace.Close()
	m.metrics.close()
	m.admin.close() // last, so that it shows what a slow end waits for
	return err
}

// reached tells steps, nil but in builds for tests, that this process has reached one.
func reached(steps node.Steps, step string) {
	if steps != nil {
		steps.Reached(step)
	}
}
