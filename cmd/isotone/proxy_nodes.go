package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

// proxyNodes is what only requests to a cluster have.
type proxyNodes struct {
	Advertise string `name:"advertise" placeholder:"HOST:PORT" help:"The address that clients are told as the leader's. Default: that of --listen, with localhost for every interface."`
	Mode      string `name:"mode" placeholder:"MODE" complete:"quorum,lease" help:"quorum or lease, for requests that name neither. Default: what the nodes have."`
	Cluster   string `name:"cluster" placeholder:"ID" help:"The ID of the cluster, 16 hexadecimal digits: no other is used. Default: that of the first node that is reached."`

	accessFlags
	proxyAccess

	IDs bool `name:"ids" default:"true" negatable:"" help:"Make snowflake ids here, with a worker leased from the cluster. Default: on; --no-ids makes none."`
}

// startGateway starts the proxy that the flags ask for. secure is nil without TLS.
func (c *proxyCmd) startGateway(secure *tls.Config, o server.ProxyOptions) (server.Proxy, error) {
	if secure != nil {
		secure.NextProtos = []string{"h2", "http/1.1"}
	}
	cfg, err := c.gateway(secure, o.Log.Logger)
	if err != nil {
		return nil, err
	}
	g, err := server.StartGateway(cfg, o)
	if unusable := (*server.UnusableClientError)(nil); errors.As(err, &unusable) {
		return nil, usagef("--node: %v", err)
	} else if err != nil {
		return nil, err
	}
	return g, nil
}

// gateway returns the configuration of the proxy that the flags ask for. secure is nil without TLS.
func (c *proxyCmd) gateway(secure *tls.Config, log *slog.Logger) (server.GatewayConfig, error) {
	cfg := server.GatewayConfig{
		Addr: c.Advertise, Mode: isotone.ReadDefault, TLS: secure, TLSRequired: c.RequireTLS, ConnectionsMax: c.MaxConnections, IDs: c.IDs,
	}
	var err error
	if c.Mode != "" {
		if cfg.Mode, err = isotone.ParseReadMode(c.Mode); err != nil {
			return cfg, usagef("--mode %q: want quorum or lease", c.Mode)
		}
	}
	if err := c.reach(&cfg.Client); err != nil {
		return cfg, err
	}
	if cfg.Users, err = c.openUsers(cfg.Client.Credentials != nil || c.Cert != "", log); err != nil {
		return cfg, err
	}
	if c.Cluster != "" {
		if cfg.Client.Cluster, err = isotone.ParseClusterID(c.Cluster); err != nil {
			return cfg, usagef("--cluster %q: want 16 hexadecimal digits, not all 0", c.Cluster)
		}
	}
	if cfg.Addr == "" {
		cfg.Addr = reachable(c.Listen)
	}
	return cfg, nil
}

// reach sets the nodes, and how they are reached.
func (c *proxyCmd) reach(o *client.Options) error {
	a, err := c.open()
	if err != nil {
		return err
	}
	for i, addr := range hosts(c.Node) {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return usagef("--node %.100q: want HOST:PORT or https://HOST:PORT", config.Redact(c.Node[i])) // with its scheme
		}
	}
	bases, err := a.URLs("--node", c.Node)
	if err != nil {
		return err
	}
	a.Options(o, bases, c.renewing())
	return nil
}
