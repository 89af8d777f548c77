package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/balance/proxy"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/resp"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/snowflake"
)

// proxyNodes is what only requests to a cluster have.
type proxyNodes struct {
	Advertise string `name:"advertise" placeholder:"HOST:PORT" help:"The address that clients are told as the leader's. Default: that of --listen."`
	Mode      string `name:"mode" placeholder:"MODE" help:"quorum or lease, for requests that name neither. Default: what the nodes have."`
	Cluster   string `name:"cluster" placeholder:"ID" help:"The ID of the cluster, 16 hexadecimal digits: no other is used. Default: that of the first node that is reached."`
	IDs       bool   `name:"ids" default:"true" negatable:"" help:"Make snowflake ids here, with a worker leased from the cluster. Default: on; --no-ids makes none."`
}

// nodesProxy serves what a node serves, from a cluster behind it.
type nodesProxy struct {
	gateway        *proxy.Gateway
	client         *client.Client
	ids            *leasedIDs // nil: none
	web            *web.Server
	gate           atomic.Pointer[gate.Gate] // nil until serve
	mode           isotone.ReadMode
	tls            *tls.Config        // nil: there is no certificate
	secure         *secure.Terminator // nil until serve, or without a certificate
	connectionsMax int
	stats          *requestStats // nil unless requests are measured
	metrics        *proxyMetrics
}

// clusterSource is package client as internal/balance/proxy asks it.
type clusterSource struct{ *client.Client }

func (s clusterSource) Timestamps(ctx context.Context, mode isotone.ReadMode, count uint64) (isotone.Range, error) {
	return s.In(mode).Timestamps(ctx, count)
}

// startNodesProxy builds what the flags ask for.
func startNodesProxy(c *proxyCmd, secure *tls.Config, log *telemetry.Log) (*nodesProxy, error) {
	p := &nodesProxy{metrics: newProxyMetrics(log), tls: secure, connectionsMax: c.MaxConnections}
	p.metrics.watchCluster()
	var err error
	if c.Mode != "" {
		if p.mode, err = isotone.ParseReadMode(c.Mode); err != nil {
			return nil, usagef("--mode %q: want quorum or lease", c.Mode)
		}
	}
	options := client.Options{Addrs: c.Node, Lazy: true, Hooks: p.metrics.hooks(log.Logger)}
	if c.Cluster != "" {
		if options.Cluster, err = isotone.ParseClusterID(c.Cluster); err != nil {
			return nil, usagef("--cluster %q: want 16 hexadecimal digits, not all 0", c.Cluster)
		}
	}
	if p.client, err = client.NewWith(context.Background(), options); err != nil {
		return nil, usagef("--node: %v", err)
	}
	addr := c.Advertise
	if addr == "" {
		addr = c.Listen
		if strings.HasPrefix(addr, ":") {
			addr = "localhost" + addr
		}
	}
	p.gateway, err = proxy.StartGateway(proxy.UpstreamConfig{Source: clusterSource{p.client}, Cluster: p.client.Cluster, Addr: addr}, true, log.Logger)
	if err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	var ids front.IDs
	if c.IDs {
		p.ids = leaseIDs(p.client, log.Logger)
		ids = p.ids
	}
	if c.RequestStats {
		p.stats = newRequestStats(c.RequestStatsSample, telemetry.NewRequestStats(p.metrics.registry), log.Logger)
	}
	p.web = web.New(web.Config{
		Backend: p.gateway.Backend(), IDs: ids, Mode: p.mode, TLS: secure, Observe: p.metrics.observeOne, Log: log.Logger,
		Limits:    web.Limits{ConnectionsMax: c.MaxConnections},
		Elsewhere: p.inLoop, Wrap: p.stats.wrap(),
	})
	return p, nil
}

// inLoop returns how many connections the loop has.
func (p *nodesProxy) inLoop() int {
	if g := p.gate.Load(); g != nil {
		return g.Connections()
	}
	return 0
}

// serve serves until stop.
func (p *nodesProxy) serve(ln net.Listener) error {
	var udp net.PacketConn
	if p.tls != nil {
		var err error
		if udp, err = net.ListenPacket("udp", ln.Addr().String()); err != nil {
			return errors.Join(fmt.Errorf("--listen, for HTTP/3: %w", err), ln.Close())
		}
	}
	if err := p.gateway.Serve(ln, loop.Limits{}, func(b front.Backend, l *loop.Loop) proxy.Lane { return p.lane(b, l, udp) }); err != nil {
		if udp != nil {
			_ = udp.Close()
		}
		return fmt.Errorf("serve clients: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- p.web.Serve(udp) }()
	select {
	case err := <-served:
		return err
	case <-p.gateway.Done():
		return errors.Join(p.gateway.Err(), p.web.Shutdown(context.Background()), <-served)
	}
}

// lane builds the fronts in the loop.
func (p *nodesProxy) lane(b front.Backend, l *loop.Loop, udp net.PacketConn) proxy.Lane {
	var ids front.IDs
	if p.ids != nil {
		ids = p.ids
	}
	hot := http1.Config{Backend: b, IDs: ids, Mode: p.mode, HandOver: p.web.Take, Observe: p.metrics.observeMany, Stats: p.stats.fastPath(), Loop: l}
	if udp != nil {
		hot.AltSvc = web.AltSvc(udp.LocalAddr())
	}
	http := http1.New(hot)
	redis := resp.New(resp.Config{Backend: b, IDs: ids, Mode: p.mode, Observe: p.metrics.observeMany, Version: version})
	entry := gate.Config{
		Loop: l, HTTP1: http.Open, RESP: redis.Open, Commands: resp.CommandNames(), Rest: p.web.Take, Refuse: p.web.Refuse,
		Elsewhere: p.web.Connections, ConnectionsMax: p.connectionsMax,
	}
	var g *gate.Gate
	lane := proxy.Lane{
		Stop:  func() { g.Stop(); http.Stop(); redis.Stop() },
		Conns: func() int { return http.Conns() + redis.Sessions() },
	}
	if p.tls != nil {
		terminator := secure.New(secure.Config{
			Loop: l, TLS: p.tls,
			Open:     func(c *loop.Conn) loop.Handler { return g.Inside(c) },
			HandOver: func(nc net.Conn) { g.Rest(nc) }, HandOverProtocol: "h2",
		})
		entry.TLS, p.secure = terminator.Accept, terminator
		lane.Stop = func() { g.Stop(); terminator.Stop(); http.Stop(); redis.Stop() }
		lane.Conns = func() int { return terminator.Conns() + http.Conns() + redis.Sessions() }
	}
	g = gate.New(entry)
	p.gate.Store(g)
	lane.Open = g.Open
	return lane
}

func (p *nodesProxy) stop(ctx context.Context) error {
	p.gateway.StopServing(ctx)
	err := p.web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what was still running has been cut, as announced
	}
	err = errors.Join(err, p.gateway.Close())
	if p.secure != nil {
		p.secure.Wait()
	}
	if p.ids != nil {
		p.ids.close()
	}
	return errors.Join(err, p.client.Close())
}

func (p *nodesProxy) admin() proxyAdmin {
	backend := p.gateway.Backend()
	return proxyAdmin{
		metrics: p.metrics.handler(),
		status: func() any {
			status := struct {
				Ready       bool   `json:"ready"`
				Why         string `json:"why,omitempty"`
				ClusterID   string `json:"clusterID,omitempty"`
				Connections int    `json:"connections"`
			}{Why: backend.Status().NotReady, Connections: p.web.Connections() + p.inLoop()}
			status.Ready = status.Why == ""
			if id := p.client.Cluster(); id != 0 {
				status.ClusterID = id.String()
			}
			return status
		},
		ready: func() string { return backend.Status().NotReady },
	}
}

// leasedIDs makes ids as soon as there is a worker for them.
type leasedIDs struct {
	generator atomic.Pointer[client.Generator]
	cancel    context.CancelFunc
	leasing   sync.WaitGroup
	log       *slog.Logger
}

// leaseRetry is the pause between two attempts to lease the first worker.
const leaseRetry = time.Second

func leaseIDs(c *client.Client, log *slog.Logger) *leasedIDs {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leasedIDs{cancel: cancel, log: log}
	l.leasing.Go(func() {
		for ctx.Err() == nil {
			g, err := c.NewGenerator(ctx, client.GeneratorOptions{})
			if err == nil {
				l.generator.Store(g)
				log.Info("making ids", "worker", g.Worker())
				return
			}
			if ctx.Err() == nil {
				log.Warn("no worker for ids yet", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(leaseRetry):
			}
		}
	})
	return l
}

// Fill implements front.IDs.
func (l *leasedIDs) Fill(dst []snowflake.ID) error {
	if g := l.generator.Load(); g != nil {
		return proxy.IDs{Generator: g}.Fill(dst)
	}
	return isotone.Errorf(isotone.CodeNoLeader, "the cluster has leased no worker yet")
}

// Worker implements front.IDs.
func (l *leasedIDs) Worker() (int, snowflake.Layout, error) {
	if g := l.generator.Load(); g != nil {
		return proxy.IDs{Generator: g}.Worker()
	}
	return 0, snowflake.Layout{}, isotone.Errorf(isotone.CodeNoLeader, "the cluster has leased no worker yet")
}

func (l *leasedIDs) close() {
	l.cancel()
	l.leasing.Wait()
	if g := l.generator.Load(); g != nil {
		if err := g.Close(); err != nil {
			l.log.Debug("the worker was not given back", "err", err)
		}
	}
}
