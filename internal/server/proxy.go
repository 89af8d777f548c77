package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy"
)

// Proxy is a proxy that has been started: for HTTP, for TCP connections, or for a cluster.
type Proxy interface {
	// Serve serves clients on ln, which it owns. It returns after Stop, or with the failure that has
	// ended it.
	Serve(ln net.Listener) error
	// Stop lets requests in progress finish until ctx ends, and ends everything.
	Stop(ctx context.Context) error
	// Admin returns what the admin port serves.
	Admin() http.Handler
}

// ProxyOptions are what all proxies have. Log is required.
type ProxyOptions struct {
	// Version of this program, as metrics show it.
	Version string
	// StatsSample: measure one in that many HTTP requests; 0: none.
	StatsSample int
	// TraceEndpoint is where traces go, "" for nowhere; one in TraceSample requests is traced.
	TraceEndpoint string
	TraceSample   int
	Log           *telemetry.Log
}

// startTracing returns nil without an endpoint.
func (o *ProxyOptions) startTracing(r *telemetry.Registry) *trace.Exporter {
	return startTracing(o.TraceEndpoint, o.TraceSample, "isotone-proxy", o.Version, "", r, o.Log.Logger)
}

// ProxyAddrs are the addresses of a proxy, as errors and the log name them.
type ProxyAddrs struct {
	Listen string // of clients
	Admin  string // of operators; "": nowhere
	To     string // where it forwards
}

// ServeProxy serves clients and operators until ctx ends, and then stops p with a context from drain,
// or until p fails.
func ServeProxy(ctx context.Context, p Proxy, addrs ProxyAddrs, drain func() (context.Context, context.CancelFunc), log *slog.Logger) error {
	ln, err := net.Listen("tcp", addrs.Listen)
	if err != nil {
		return errors.Join(listen.Explain(fmt.Errorf("--listen: %w", err)), p.Stop(context.Background()))
	}
	adminListener, err := listenAdmin("--admin", addrs.Admin)
	if err != nil {
		return errors.Join(listen.Explain(err), ln.Close(), p.Stop(context.Background()))
	}
	admin := startAdmin(adminListener, p.Admin(), log)
	defer admin.close()
	log.Info("forwarding", "listen", ln.Addr().String(), "admin", admin.addr(), "to", addrs.To)
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("proxy: %w", err), p.Stop(context.Background()))
	case <-ctx.Done():
	}
	log.Info("stopping", "signal", context.Cause(ctx).Error())
	draining, cancel := drain()
	defer cancel()
	if err := errors.Join(p.Stop(draining), <-served); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// httpProxy is the proxy for HTTP backends.
type httpProxy struct {
	server  *proxy.Server
	metrics *proxyMetrics
	trace   *trace.Exporter // nil without an endpoint
}

// StartHTTPProxy starts a proxy for HTTP backends. cfg has neither what o says nor Observe; fewer connections are
// allowed where files are scarce. Its error is about cfg.
func StartHTTPProxy(cfg proxy.Config, o ProxyOptions) (Proxy, error) {
	log := o.Log.Logger
	cfg.Limits.ConnectionsMax = limitProxyConnections(cfg.Limits.ConnectionsMax, len(cfg.Backends)*proxy.ConnectionsPerBackend, OpenFiles(), log)
	metrics := newProxyMetrics(o.Version)
	o.Log.Watch(metrics.registry)
	cfg.Log, cfg.Observe = log, metrics.observe
	if o.StatsSample > 0 {
		seen := telemetry.NewRequestStats(metrics.registry)
		cfg.Measured, cfg.Sample = func(s stats.Section) { observeSection(seen, s) }, o.StatsSample
	}
	cfg.Trace = o.startTracing(metrics.registry)
	s, err := proxy.New(cfg)
	if err != nil {
		cfg.Trace.Close()
		return nil, err
	}
	metrics.watch(s)
	return &httpProxy{s, metrics, cfg.Trace}, nil
}

func (p *httpProxy) Serve(ln net.Listener) error { return p.server.Serve(ln) }

func (p *httpProxy) Stop(ctx context.Context) error {
	err := p.server.Shutdown(ctx)
	p.trace.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the rest was cut off, as documented
	}
	return err
}

func (p *httpProxy) Admin() http.Handler {
	return backendAdmin(p.metrics, func() any { return p.server.Status() }, func() string { return whyNoBackend(p.server.Status().Backends) })
}

// tcpProxy is the proxy for TCP connections.
type tcpProxy struct {
	server  *proxy.TCPServer
	metrics *proxyMetrics
}

// StartTCPProxy starts a proxy for TCP connections. cfg has neither SplicesMax nor what o says nor Observe; fewer
// connections are allowed where files are scarce. Its error is about cfg.
func StartTCPProxy(cfg proxy.TCPConfig, o ProxyOptions) (Proxy, error) {
	log, files := o.Log.Logger, OpenFiles()
	splices := proxy.TCPSplicesMax
	if files > 0 {
		splices = int(max(1, min(uint64(splices), files/16)))
	}
	cfg.Limits.SplicesMax = splices
	cfg.Limits.ConnectionsMax = limitTCPConnections(cfg.Limits.ConnectionsMax, splices, files, log)
	metrics := newProxyMetrics(o.Version)
	o.Log.Watch(metrics.registry)
	cfg.Log, cfg.Observe = log, metrics.observeTCP
	s, err := proxy.NewTCP(cfg)
	if err != nil {
		return nil, err
	}
	metrics.watchTCP(s)
	return &tcpProxy{s, metrics}, nil
}

func (p *tcpProxy) Serve(ln net.Listener) error { return p.server.Serve(ln) }

func (p *tcpProxy) Stop(ctx context.Context) error {
	err := p.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the rest was reset, as documented
	}
	return err
}

func (p *tcpProxy) Admin() http.Handler {
	return backendAdmin(p.metrics, func() any { return p.server.Status() }, func() string {
		st := p.server.Status()
		if st.Draining {
			return "the proxy is stopping"
		}
		return whyNoBackend(st.Backends)
	})
}

// backendAdmin is what the admin port of a proxy with backends serves.
func backendAdmin(m *proxyMetrics, status func() any, ready func() string) http.Handler {
	pages := proxyAdmin{
		metrics: m.handler(), status: status, ready: ready,
		checks: func() []httpapi.Check { return []httpapi.Check{{Name: "backends", Failed: ready()}} },
	}
	return pages.handler()
}

// whyNoBackend returns why no backend can be used, or "".
func whyNoBackend(list []proxy.BackendStatus) string {
	for _, b := range list {
		if !b.Down {
			return ""
		}
	}
	return "no backend is up"
}
