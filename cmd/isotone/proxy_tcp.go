package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
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

// tcp returns the configuration of the proxy of --tcp. check has checked the flags.
func (c *proxyCmd) tcp() proxy.TCPConfig {
	return proxy.TCPConfig{
		Strategy: balance.Strategy(c.Strategy), StickyPercent: c.StickyPercent, Backends: c.backends(new(flagErrors)),
		Health:   proxy.Health{Path: c.HealthPath, Port: c.HealthPort, Connect: c.HealthConnect, Interval: c.HealthInterval, Timeout: c.HealthTimeout},
		Ejection: balance.EjectorConfig{FailuresMax: c.EjectFailures, Base: c.EjectTime},
		Retry:    balance.BudgetConfig{Percent: orNone(c.RetryPercent)}, RetriesMax: orNone(c.Retries),
		Announce: announcements[c.ProxyProtocol],
		Limits: proxy.TCPLimits{
			ConnectionsMax: c.MaxConnections, BackendConnectionsMax: c.MaxBackendConnections, DialTimeout: c.DialTimeout, IdleTimeout: c.IdleTimeout,
		},
	}
}

// orNone returns n, or -1 for 0: in a configuration, 0 means the default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}
