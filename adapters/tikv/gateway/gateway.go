// Package gateway serves the timestamp part of the protocol of PD, TiKV's placement driver, from an
// Isotone cluster: the methods GetMembers, GetClusterInfo and Tso of the gRPC service pdpb.PD, as
// PD 8.1 has them. Clients of PD that only need timestamps work without changes. All other methods
// answer Unimplemented.
//
// A timestamp of PD is a unix millisecond (physical) and a counter of 18 bits (logical), which is
// the layout of [isotone.Timestamp64]. One request asks for a count of them, and the answer names the
// largest. The client counts down from it within its millisecond, so all of a count lie in one
// millisecond; see internal/front/pd, which a node has for the same.
//
// A gateway has no state. Any number of them may serve one cluster: each tells its clients that it is
// the leader, and names the others as members, to which clients turn when it fails. Timestamps of all
// gateways are in one order, because all come from the same cluster.
//
// Source of the protocol: pdpb.proto in github.com/pingcap/kvproto, and the server and the Go client
// in github.com/tikv/pd.
package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/pingcap/kvproto/pkg/pdpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/front/pd"
	"github.com/isotone/isotone/internal/host/listen"
)

// CountMax is the largest count of one request.
const CountMax = pd.CountMax

const (
	// TimeoutDefault is the default of Config.Timeout: a little less than the 3 s that the Go client
	// of PD waits for an answer, so that it gets the reason and not a timeout of its own.
	TimeoutDefault = 2500 * time.Millisecond
	// ConnectionsMaxDefault is the default of Config.ConnectionsMax. A process has one connection.
	ConnectionsMaxDefault = 4096
	// membersMax bounds Config.Members: PD's clients ask them in turn.
	membersMax = 64
	// streamsMax bounds the streams and calls of one connection that are open at once. A client has
	// one stream, or a few.
	streamsMax = 256
	// messageMax bounds what the gateway receives as one message, in bytes. Its requests have a
	// cluster ID, a count and a location.
	messageMax = 16 << 10
	// headersMax bounds the header fields of one request, in bytes.
	headersMax = 16 << 10
	// handshakeTimeout bounds the time until a new connection speaks HTTP/2.
	handshakeTimeout = 10 * time.Second
	// keepaliveMin is the shortest interval at which clients may ping: half of what client-go does,
	// and what PD permits.
	keepaliveMin = 5 * time.Second
	// idleAfter and aliveWithin find clients that have vanished without closing their connection.
	idleAfter   = 30 * time.Second
	aliveWithin = 10 * time.Second
	// endIdle ends connections without a stream.
	endIdle = 10 * time.Minute
)

// Source issues timestamps. [client.Client] of github.com/isotone/isotone/client is one. Its methods
// must be safe for concurrent use, and calls that wait at the same time should share requests.
type Source interface {
	// Timestamp64 returns a timestamp larger than all that anyone had received when the call began.
	Timestamp64(ctx context.Context) (isotone.Timestamp64, error)
	// Timestamps64 returns count consecutive ones.
	Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error)
	// Cluster returns the cluster that the timestamps are of; 0 until it is known.
	Cluster() isotone.ClusterID
}

// Config configures a [Server]. Source and Members are required.
type Config struct {
	// Source is where timestamps come from. The server does not close it.
	Source Source
	// Members are the URLs by which clients reach the gateways of this cluster, 1 to 64, of the form
	// http://HOST:PORT, or https:// with TLS. The first is this gateway. Each gateway has the same
	// set, in its own order.
	Members []string
	// Timeout bounds how long a request waits for the cluster; 0 means TimeoutDefault.
	Timeout time.Duration
	// ConnectionsMax bounds the connections, of which one address may have three quarters; further ones are closed. 0 means
	// ConnectionsMaxDefault.
	ConnectionsMax int
	// TLS has the server speak TLS, and nothing else; nil means no TLS.
	TLS *tls.Config
	// Refused, if not nil, reports whether a client whose certificate was verified with these chains is not served any more. It is asked for each
	// request, also on streams that are open. Safe for concurrent use.
	Refused func(chains [][]*x509.Certificate) bool
	// Log receives failures of the cluster; nil discards them.
	Log *slog.Logger
}

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists everything that
// is wrong.
func (c *Config) Validate() error {
	var faults []error
	if c.Source == nil {
		faults = append(faults, errors.New("want a Source"))
	}
	if len(c.Members) == 0 || len(c.Members) > membersMax {
		faults = append(faults, errors.New("want 1 to 64 members"))
	}
	for i, m := range c.Members {
		if err := checkURL(m, c.TLS != nil); err != nil {
			faults = append(faults, err)
		}
		if slices.Contains(c.Members[:i], m) {
			faults = append(faults, errors.New(m+" is a member twice"))
		}
	}
	if c.Timeout < 0 {
		faults = append(faults, errors.New("want a Timeout of 0 or more"))
	}
	if c.ConnectionsMax < 0 {
		faults = append(faults, errors.New("want ConnectionsMax of 0 or more"))
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "gateway: %v", errors.Join(faults...))
}

func checkURL(text string, secure bool) error {
	u, err := url.Parse(text)
	scheme := "http"
	if secure {
		scheme = "https"
	}
	if err == nil && u.Scheme == scheme && u.Hostname() != "" && u.Port() != "" && text == scheme+"://"+u.Host {
		return nil
	}
	return errors.New("member " + text + ": want " + scheme + "://HOST:PORT")
}

// Server is a gateway. Make it with [New], run it with Serve, and end it with Shutdown. It is a collector
// of its metrics for Prometheus.
type Server struct {
	cfg     Config
	metrics *metrics
	members []*pdpb.Member
	grpc    *grpc.Server
	health  *health.Server
	// stopping is closed when streams are to end as soon as nothing waits on them.
	stopping chan struct{}
	once     sync.Once
	readers  sync.WaitGroup
	failing  atomic.Bool // the latest request to the cluster failed
}

// New returns a server that serves nothing yet.
func New(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = TimeoutDefault
	}
	if c.ConnectionsMax == 0 {
		c.ConnectionsMax = ConnectionsMaxDefault
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: c, metrics: newMetrics(), stopping: make(chan struct{}), health: health.NewServer()}
	for _, m := range c.Members {
		s.members = append(s.members, newMember(m))
	}
	s.grpc = grpc.NewServer(s.options()...)
	s.grpc.RegisterService(s.service(), s)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	return s, nil
}

func (s *Server) options() []grpc.ServerOption {
	o := []grpc.ServerOption{
		grpc.UnknownServiceHandler(refuseMethod),
		grpc.MaxConcurrentStreams(streamsMax),
		grpc.MaxRecvMsgSize(messageMax),
		grpc.MaxHeaderListSize(headersMax),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: endIdle, Time: idleAfter, Timeout: aliveWithin}),
	}
	if s.cfg.TLS != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	return o
}

// Serve accepts connections until Shutdown, and then returns nil, or until ln fails. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	err := s.grpc.Serve(listen.NewBounded(ln, s.cfg.ConnectionsMax, address.Share(s.cfg.ConnectionsMax)))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown answers the requests that have arrived, ends all streams and connections, and returns when
// all goroutines of the server have ended. Clients take the end of their stream as a change of the
// leader, and ask the members. When ctx is done, what is left is cut off, and the error is that of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.once.Do(func() {
		s.health.Shutdown()
		close(s.stopping)
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	var err error
	select {
	case <-stopped:
	case <-ctx.Done():
		err = ctx.Err()
		s.grpc.Stop()
		<-stopped
	}
	s.readers.Wait()
	return err
}

// timestamps asks the cluster for count timestamps, and logs when it begins and ceases to fail.
func (s *Server) timestamps(ctx context.Context, timeout time.Duration, count uint64) (isotone.Range64, error) {
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	r, err := s.ask(asking, count)
	if err == nil && r.Count != count {
		err = isotone.Errorf(isotone.CodeInternal, "the cluster has answered %d timestamps to a request for %d", r.Count, count)
	}
	if ctx.Err() == nil || err == nil {
		s.metrics.clusterAsked(began, err)
	}
	switch {
	case ctx.Err() != nil: // the caller has gone
	case err == nil && s.failing.CompareAndSwap(true, false):
		s.cfg.Log.Info("the cluster answers again")
	case err != nil && s.failing.CompareAndSwap(false, true):
		s.cfg.Log.Warn("the cluster does not answer", "err", err)
	}
	return r, err
}

// Ready returns nil if the cluster has answered a request for a timestamp, which waits until ctx is done
// and 800 ms at most.
func (s *Server) Ready(ctx context.Context) error {
	_, err := s.timestamps(ctx, probeTimeout, 1)
	return err
}

// ask uses the call for one timestamp where it can: a client may have a shorter way for it.
func (s *Server) ask(ctx context.Context, count uint64) (isotone.Range64, error) {
	if count > 1 {
		return s.cfg.Source.Timestamps64(ctx, count)
	}
	first, err := s.cfg.Source.Timestamp64(ctx)
	return isotone.Range64{First: first, Count: 1}, err
}
