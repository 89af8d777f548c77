package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/proxy"
)

// proxyTCP has the flags that go with --tcp.
type proxyTCP struct {
	HealthConnect         bool          `name:"health-connect" default:"true" negatable:"" help:"Without --health-path: check that backends accept connections. Default: yes."`
	HealthPort            int           `name:"health-port" placeholder:"PORT" help:"With --health-path: the port of the backends that serves that path over HTTP. Default: that of --backend."`
	MaxBackendConnections int           `name:"max-backend-connections" default:"0" placeholder:"N" help:"Maximum number of connections to one backend; 0: no other bound than --max-connections. Default: ${default}."`
	DialTimeout           time.Duration `name:"dial-timeout" default:"2s" help:"Timeout for a backend to accept a connection; then another one is tried."`
	IdleTimeout           time.Duration `name:"idle-timeout" default:"1h" help:"Reset a connection on which no byte has moved for this long. At least 1s."`
	DrainTimeout          time.Duration `name:"drain-timeout" default:"10s" help:"After SIGTERM, how long open connections may last before they are reset."`
	ProxyProtocol         string        `name:"proxy-protocol" default:"off" enum:"off,v1,v2" placeholder:"v1|v2" help:"Tell backends the address of the client, in this version of the PROXY protocol. They must expect it. Default: ${default}."`
}

// announcements are the versions of the PROXY protocol by their name.
var announcements = map[string]int{"off": 0, "v1": 1, "v2": 2}

// checkTCP checks the values of the flags.
func (c *proxyCmd) checkTCP(found *flagErrors) {
	if c.HealthPort < 0 || c.HealthPort > 65535 {
		found.add(fmt.Errorf("--health-port %d: want 1 to 65535", c.HealthPort))
	} else if c.HealthPort > 0 && c.HealthPath == "" {
		found.add(errors.New("--health-port goes with --health-path"))
	}
	if c.MaxBackendConnections < 0 {
		found.add(fmt.Errorf("--max-backend-connections %d: want 0 or more", c.MaxBackendConnections))
	}
	if c.IdleTimeout < time.Second {
		found.add(fmt.Errorf("--idle-timeout %v: want 1s or more", c.IdleTimeout))
	}
	if c.DrainTimeout < 0 {
		found.add(fmt.Errorf("--drain-timeout %v: want 0s or more", c.DrainTimeout))
	}
}

// startTCP makes the proxy of --tcp.
func (c *proxyCmd) startTCP(log *telemetry.Log) (forwarder, error) {
	files := openFiles()
	splices := proxy.TCPSplicesMax
	if files > 0 {
		splices = int(max(1, min(uint64(splices), files/16)))
	}
	c.MaxConnections = limitTCPConnections(c.MaxConnections, splices, files, log.Logger)
	metrics := newProxyMetrics()
	log.Watch(metrics.registry)
	cfg := proxy.TCPConfig{
		Strategy: balance.Strategy(c.Strategy), StickyPercent: c.StickyPercent, Backends: c.backends(new(flagErrors)),
		Health:   proxy.Health{Path: c.HealthPath, Port: c.HealthPort, Connect: c.HealthConnect, Interval: c.HealthInterval, Timeout: c.HealthTimeout},
		Ejection: balance.EjectorConfig{FailuresMax: c.EjectFailures, Base: c.EjectTime},
		Retry:    balance.BudgetConfig{Percent: orNone(c.RetryPercent)}, RetriesMax: orNone(c.Retries),
		Announce: announcements[c.ProxyProtocol],
		Limits: proxy.TCPLimits{
			ConnectionsMax: c.MaxConnections, BackendConnectionsMax: c.MaxBackendConnections,
			DialTimeout: c.DialTimeout, IdleTimeout: c.IdleTimeout, SplicesMax: splices,
		},
		Observe: metrics.observeTCP, Log: log.Logger,
	}
	server, err := proxy.NewTCP(cfg)
	if err != nil {
		return nil, usageError(err.Error())
	}
	metrics.watchTCP(server)
	return &tcpForwarder{server, metrics}, nil
}

// orNone returns n, or -1 for 0: in a configuration, 0 means the default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// tcpForwarder is the proxy for TCP connections.
type tcpForwarder struct {
	server  *proxy.TCPServer
	metrics *proxyMetrics
}

func (f *tcpForwarder) serve(ln net.Listener) error { return f.server.Serve(ln) }

func (f *tcpForwarder) stop(ctx context.Context) error {
	err := f.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the rest was reset, as documented
	}
	return err
}

func (f *tcpForwarder) admin() proxyAdmin {
	ready := func() string {
		st := f.server.Status()
		if st.Draining {
			return "the proxy is stopping"
		}
		return whyNoBackend(st.Backends)
	}
	return proxyAdmin{
		metrics: f.metrics.handler(), status: func() any { return f.server.Status() }, ready: ready,
		checks: func() []httpapi.Check { return []httpapi.Check{{Name: "backends", Failed: ready()}} },
	}
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
