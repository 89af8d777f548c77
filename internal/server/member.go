package server

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
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/front/pd"
	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/inspect/dashboard"
	"github.com/isotone/isotone/internal/node"
)

// DrainTimeout bounds how long a node that stops waits for requests under way.
const DrainTimeout = 5 * time.Second

// releaseTimeout bounds how long a node that stops waits for the cluster to take its
// worker ids back.
const releaseTimeout = time.Second

// Member is one node with its fronts. Its methods are safe for concurrent use.
type Member struct {
	Node *node.Node
	// Addr is the client address as told to others.
	Addr string
	// ThriftAddr is where the Thrift listener is; "" without one.
	ThriftAddr string
	// PDAddr is where clients of PD are served; "" if they are not.
	PDAddr string
	// RedirectTime bounds how long the member, once it has led, still redirects its clients to the next
	// leader before it closes their connections. It must not change once the member stops.
	RedirectTime time.Duration

	fronts *fronts
	docs   *documents
	// served is closed when the front has ended, after serveErr was set.
	served          chan struct{}
	serveErr        error
	steps           node.Steps // see Options
	transferTimeout time.Duration
	shutdownDelay   time.Duration
	asked           chan struct{} // closed by drain
	askOnce         sync.Once
	thrift          *thriftrpc.Server // nil without a listener
	thriftEnded     func() error
	// forwarding is nil unless FORWARD is set.
	forwarding *forwarding
	// unfollow ends following the files of the certificate, and waits for that.
	unfollow      func()
	admin         *adminServer    // nil without ADMIN_ADDR
	metrics       *adminServer    // nil without METRICS_ADDR
	operator      *adminServer    // of the Unix socket; nil where none can be made
	trace         *trace.Exporter // nil without TRACE_ENDPOINT
	protocolTrace protocolTrace
	close         func() error // end, once
}

// Sockets are what a member listens on.
type Sockets struct {
	HTTP net.Listener
	QUIC net.PacketConn
	Peer net.Listener
	// Thrift is nil with THRIFT_PORT=off, and when nobody has asked for a port and the default one is taken.
	Thrift net.Listener
	PD     net.Listener // nil with PD_PORT=off
	Admin  net.Listener // nil without ADMIN_ADDR
	// Metrics is nil without METRICS_ADDR.
	Metrics net.Listener
}

// Listen opens the sockets of a member. With port 0 the TCP port is any free one, and
// UDP gets the same number.
func Listen(s *config.Settings) (Sockets, error) {
	var so Sockets
	var err error
	if so.HTTP, err = net.Listen("tcp", s.HTTPAddr()); err != nil {
		return Sockets{}, fmt.Errorf("HTTP_PORT: %w", err)
	}
	port := so.HTTP.Addr().(*net.TCPAddr).Port
	if so.QUIC, err = net.ListenPacket("udp", net.JoinHostPort(s.HTTPHost, strconv.Itoa(port))); err != nil {
		return Sockets{}, errors.Join(fmt.Errorf("HTTP_PORT, for HTTP/3: %w", err), so.HTTP.Close())
	}
	if so.Peer, err = listenPeers(s.RaftAddr); err != nil {
		return Sockets{}, errors.Join(fmt.Errorf("RAFT_ADDR: %w", err), so.HTTP.Close(), so.QUIC.Close())
	}
	if so.Thrift, err = listenThrift(s); err != nil {
		return Sockets{}, errors.Join(err, so.Close())
	}
	if so.PD, err = listenPD(s); err != nil {
		return Sockets{}, errors.Join(err, so.Close())
	}
	if so.Admin, err = listenAdmin("ADMIN_ADDR", s.AdminAddr); err != nil {
		return Sockets{}, errors.Join(err, so.Close())
	}
	if so.Metrics, err = listenAdmin("METRICS_ADDR", s.MetricsAddr); err != nil {
		return Sockets{}, errors.Join(err, so.Close())
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

// Close closes all sockets.
func (so Sockets) Close() error {
	return errors.Join(so.closeFronts(), so.Peer.Close())
}

// alone reports whether all addresses are loopback addresses, so that nobody elsewhere can connect.
func (so Sockets) alone() bool {
	all := []net.Addr{so.HTTP.Addr(), so.QUIC.LocalAddr(), so.Peer.Addr()}
	for _, l := range []net.Listener{so.Thrift, so.PD, so.Admin, so.Metrics} {
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
func (so Sockets) waiting() []net.Listener {
	if so.Metrics == nil {
		return []net.Listener{so.HTTP}
	}
	return []net.Listener{so.HTTP, so.Metrics}
}

// closeFronts closes all but the one that the node has.
func (so Sockets) closeFronts() error {
	err := errors.Join(so.HTTP.Close(), so.QUIC.Close())
	for _, l := range []net.Listener{so.Thrift, so.PD, so.Admin, so.Metrics} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// Options is what a member is told beside its settings.
type Options struct {
	// Version of this program, as metrics and documents show it.
	Version string
	// ID of the member; 0: as in the settings.
	ID uint64
	// Join is nil unless the member joins a cluster.
	Join *node.Join
	// Clock is nil for the system's. Clock, Steps, Level and Snapshots are set in builds for tests only; see [node.Config].
	Clock     node.Clock
	Steps     node.Steps
	Level     uint64
	Snapshots uint64
	// Loops is the number of loops that serve clients.
	Loops int
	// KeepProcessors: GOMAXPROCS has one more for each loop.
	KeepProcessors bool
	// Files is how many files may be open; 0: unknown.
	Files uint64
	// Log is the log whose dropped lines are counted; nil counts none.
	Log *telemetry.Log
	// Documents is where the documents of LIVE log; nil: with everything else.
	Documents *slog.Logger
}

// Start runs a node on the given sockets, which it owns from here on, also after an error.
func Start(s *config.Settings, so Sockets, o Options, log *slog.Logger) (*Member, error) {
	peers, assumed, ids := s.PeerMap(), s.Peers == nil, idConfig(s)
	if host, port, _ := net.SplitHostPort(s.RaftAddr); assumed && port == "0" && !address.Unspecified(s.RaftAddr) {
		// Any free port, another one at each start: the record has to follow it as it follows PEERS.
		peers[s.NodeID] = net.JoinHostPort(host, strconv.Itoa(so.Peer.Addr().(*net.TCPAddr).Port))
		assumed = false
	}
	addr := s.Advertise(so.HTTP.Addr().(*net.TCPAddr).Port)
	metrics := telemetry.NewMetrics(o.Version)
	if o.Log != nil {
		o.Log.Watch(metrics.Registry())
	}
	f, err := openMemberFiles(s, so.alone(), addr, o.Join, metrics, log)
	if err != nil {
		return nil, errors.Join(err, so.Close())
	}
	warnAddresses(s, addr, peers, log)
	m := &Member{
		Addr: addr, steps: o.Steps, served: make(chan struct{}), asked: make(chan struct{}), shutdownDelay: s.ShutdownDelay, RedirectTime: redirectTime,
		// An election that fails and is repeated takes up to 80 ticks. Limits of the cluster clock have to pass
		// before; that is waited for up to twice their length and 20 ticks.
		transferTimeout: max(time.Second, 100*s.RTT) + 2*s.Interval,
	}
	m.close = sync.OnceValue(m.end)
	var forwarder func(func()) node.Forwarder
	if s.Forward {
		if m.forwarding, err = forwardFrom(s, addr, log); err != nil {
			return nil, errors.Join(err, so.Close())
		}
		forwarder = m.forwarding.forwarder
	}
	if m.protocolTrace, err = openProtocolTrace(s.TraceFile, log); err != nil {
		return nil, errors.Join(fmt.Errorf("TRACE_FILE: %w", err), so.Close(), m.forwarding.close())
	}
	m.trace = startTracing(s.TraceEndpoint, s.TraceSample, "isotone", o.Version, strconv.FormatUint(s.NodeID, 10), metrics.Registry(), log)
	m.Node, err = node.Start(node.Config{
		NodeID:                cmp.Or(o.ID, s.NodeID),
		Peers:                 peers,
		PeersAssumed:          assumed,
		Join:                  o.Join,
		Priority:              s.Priority,
		PeerListener:          so.Peer,
		PeerTLS:               f.peers,
		PeerInsecure:          s.PeerInsecure,
		CarryInPlaintext:      f.users.AnonymousIsAdmin(),
		CheckPeers:            checkPeersInClear(s),
		Told:                  f.users.Owe,
		ClientAddr:            m.Addr,
		DataDir:               s.DataDir,
		EpochInterval:         s.EpochInterval,
		ClockJumpMax:          s.ClockJumpMax,
		Interval:              s.Interval,
		ReservationsMissedMax: s.EpochDeadlineLimit,
		RequestsMax:           s.TimestampRequestBuffer,
		Tick:                  s.RTT,
		Loops:                 o.Loops,
		KeepProcessors:        o.KeepProcessors,
		Mode:                  s.ReadMode,
		IDs:                   ids,
		Forward:               forwarder,
		Timelines:             s.Timelines,
		GroupSettle:           s.GroupSettle,
		Clock:                 o.Clock,
		Level:                 o.Level,
		SnapshotEvery:         o.Snapshots,
		Steps:                 o.Steps,
		Observe:               m.protocolTrace.observe,
		Log:                   log,
		Metrics:               metrics,
		Trace:                 m.trace,
	})
	if err != nil {
		m.closeTraces()
		return nil, errors.Join(err, so.closeFronts(), m.forwarding.close())
	}
	m.forwarding.of(m.Node.Status)
	m.followFiles(f.clients.Run, f.users.Run, runPeerTLS(f.peers), tellUse(f.users, m.Node), runGroups(f.groups))
	if m.docs, err = newDocuments(s, m.Node, f.users, o.Version, addr, metrics, log, cmp.Or(o.Documents, log)); err != nil {
		m.unfollow()
		m.closeTraces()
		return nil, errors.Join(err, m.Node.Close(), so.closeFronts(), m.forwarding.close())
	}
	m.startFronts(s, so, f, metrics, o, log)
	return m, nil
}

// memberFiles is what a member reads from files that may change while it runs.
type memberFiles struct {
	clients *credential.Reloader // the certificate that clients see
	users   *access.Control
	peers   *node.PeerTLS // nil: in plaintext
	groups  *pd.Groups    // nil: clients of PD have no keyspace groups
}

// openMemberFiles reads them.
func openMemberFiles(s *config.Settings, alone bool, addr string, join *node.Join, metrics *telemetry.Metrics, log *slog.Logger) (f memberFiles, err error) {
	if f.clients, err = openTLS(s, addr, metrics, log); err != nil {
		return f, err
	}
	if f.users, err = access.Open(access.Config{File: s.ACLFile, Setting: "ACL_FILE", Anonymous: s.Anonymous, Alone: alone, Ended: f.clients.Ended, Log: log}); err != nil {
		return f, err
	}
	if f.groups, err = openGroups(s, log); err != nil {
		return f, err
	}
	watchUsers(metrics.Registry(), f.users)
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
func (m *Member) startFronts(s *config.Settings, so Sockets, f memberFiles, metrics *telemetry.Metrics, o Options, log *slog.Logger) {
	page, stats := optional(s, m.docs, metrics, log)
	secure := f.clients.TLS("h2", "http/1.1")
	limits := limitConnections(s.MaxConnections, so.Thrift != nil, o.Files, log)
	f.users.Share(access.ClientPool, limits.client)
	f.users.Share(access.ThriftPool, limits.thrift)
	m.fronts = newFronts(frontsConfig{
		version: o.Version,
		server:  m.Node,
		web: web.Config{
			Backend: m.Node, IDs: m.Node.IDs(-1), Clock: m.Node.Clock(), Live: m.docs, Page: page, Metrics: metrics.Handler(), Operator: m.Node, Carrier: m.Node, Sessions: m.Node.Sessions(),
			Drain: m.drain, Admin: admin.New(admin.Config{Operator: m.Node, Timelines: m.Node, Security: func() any { return tellOperator(s, f) }, Raised: web.FloorRaised, RaisedTimelines: web.TimelinesRaised}).Serve,
			Mode: s.ReadMode, TLS: secure, Access: f.users,
			Limits: web.Limits{ConnectionsMax: limits.client}, Observe: metrics.ObserveRequest, Log: log,
		},
		ids:     func(i int) front.IDs { return m.Node.IDs(i) },
		live:    m.docs.answer,
		observe: metrics.ObserveRequests,
		stats:   stats,
		trace:   m.trace,
		pd: newPD(so.PD, m.Addr, pd.Config{
			Status: m.Node.Status, Mode: s.ReadMode, Access: f.users, Observe: metrics.ObserveRequests, Groups: f.groups, Timelines: m.Node,
		}),
		pdListener: so.PD,

		slotsOfTimelines: s.SlotsOfTimelines,
		redisScripts:     redisScripts(s.RedisLocks, metrics),

		tlsRequired: s.RequireTLS,
	})
	if so.PD != nil {
		m.PDAddr = so.PD.Addr().String()
	}
	if so.Thrift != nil {
		m.ThriftAddr = so.Thrift.Addr().String()
	}
	m.thrift, m.thriftEnded = serveThrift(so.Thrift, s.ThriftPort, m.Node, thriftrpc.Config{
		TLS: secure, TLSRequired: s.RequireTLS, Access: f.users, Limits: thriftrpc.Limits{ConnectionsMax: limits.thrift},
		Observe: metrics.ObserveThrift, Log: log,
	})
	m.fronts.watchConnections(metrics.Registry(), m.thrift)
	m.Node.OperateBy(m.fronts.web.Carried)
	m.operator = startOperator(s.DataDir, nodeAdmin(f.users, metrics.Handler(), m.fronts.web.Handler()), m.fronts.web.Handler(), log)
	m.admin = startAdmin(so.Admin, nodeAdmin(f.users, metrics.Handler(), m.fronts.web.Handler()), log)
	m.metrics = startAdmin(so.Metrics, nodeMetrics(metrics.Handler(), m.fronts.web.Handler()), log)
	go func() {
		defer close(m.served)
		m.serveErr = m.fronts.serve(so.HTTP, so.QUIC)
	}()
}

// optional returns the dashboard and the measurement of requests, each nil unless it is set.
func optional(s *config.Settings, d *documents, m *telemetry.Metrics, log *slog.Logger) (page http.Handler, stats *requestStats) {
	if s.Dashboard {
		page = dashboard.Handler(dashboard.Config{State: d.own.Latest, Refuse: web.RefuseState})
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
func (m *Member) followFiles(follow ...func(context.Context)) {
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

// Close ends the member without transferring leadership, once, and waits for that.
func (m *Member) Close() error { return m.close() }

// Wait returns when ctx ends or the member is asked to drain, with nil, or when the member
// cannot go on.
func (m *Member) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.asked:
		return nil
	case <-m.Node.Failed():
		return m.Node.Err()
	case <-m.served:
		if err := m.Node.Err(); err != nil {
			return err // it ended the fronts, too
		}
		return fmt.Errorf("serve clients: %w", m.serveErr)
	}
}

// end is close.
func (m *Member) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), DrainTimeout)
	defer cancel()
	if m.Node.Status().Role == "leader" {
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
	_ = m.Node.ReleaseWorkers(release) // without a quorum their leases run out by themselves
	reached(m.steps, "workers released")
	m.operator.close() // while the directory is locked
	err = errors.Join(err, m.Node.Close())
	reached(m.steps, "node closed")
	err = errors.Join(err, m.forwarding.close())
	m.fronts.wait()
	m.unfollow()
	m.closeTraces()
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
