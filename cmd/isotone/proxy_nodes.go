package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/forward"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/snowflake"
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

// nodesProxy serves what a node serves, from a cluster behind it.
type nodesProxy struct {
	gateway *forward.Gateway
	client  *client.Client
	ids     *leasedIDs // nil: none
	fronts  *fronts
	secure  bool // there is a certificate
	metrics *proxyMetrics
	trace   *trace.Exporter // nil without --trace-endpoint
	// unfollow ends following the list of users, and waits for that.
	unfollow func()
}

// clusterSource is package client as internal/proxy asks it.
type clusterSource struct{ *client.Client }

func (s clusterSource) Timestamps(ctx context.Context, mode isotone.ReadMode, floor isotone.Timestamp, count uint64) (isotone.Range, error) {
	return s.In(mode).Above(floor).Timestamps(ctx, count)
}

func (s clusterSource) Timestamps64(ctx context.Context, mode isotone.ReadMode, floor isotone.Timestamp, count uint64) (isotone.Range64, error) {
	return s.In(mode).Above(floor).Timestamps64(ctx, count)
}

// startNodesProxy builds what the flags ask for.
func startNodesProxy(c *proxyCmd, secure *tls.Config, log *telemetry.Log) (*nodesProxy, error) {
	p := &nodesProxy{metrics: newProxyMetrics(), secure: secure != nil}
	log.Watch(p.metrics.registry)
	p.metrics.watchCluster()
	var err error
	mode := isotone.ReadDefault
	if c.Mode != "" {
		if mode, err = isotone.ParseReadMode(c.Mode); err != nil {
			return nil, usagef("--mode %q: want quorum or lease", c.Mode)
		}
	}
	options := client.Options{Lazy: true, TraceParent: traceparent, Hooks: p.metrics.hooks(log.Logger)}
	if err := c.reach(&options); err != nil {
		return nil, err
	}
	users, err := c.openUsers(options.Credentials != nil || c.Cert != "", log.Logger)
	if err != nil {
		return nil, err
	}
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
		addr = reachable(c.Listen)
	}
	p.gateway, err = forward.StartGateway(forward.Config{Source: clusterSource{p.client}, Cluster: p.client.Cluster, Addr: addr}, true, log.Logger)
	if err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	var ids front.IDs
	if c.IDs {
		p.ids = leaseIDs(p.client, log.Logger)
		ids = p.ids
	}
	var stats *requestStats
	if c.RequestStats {
		stats = newRequestStats(c.RequestStatsSample, telemetry.NewRequestStats(p.metrics.registry), log.Logger)
	}
	p.trace = c.startTracing(p.metrics.registry, log)
	p.fronts = newFronts(frontsConfig{
		server: p.gateway,
		web: web.Config{
			Backend: p.gateway.Backend(), IDs: ids, Mode: mode, TLS: secure, Observe: p.metrics.observeOne, Log: log.Logger, Access: users,
			Limits: web.Limits{ConnectionsMax: c.MaxConnections},
		},
		ids:     func(int) front.IDs { return ids },
		observe: p.metrics.observeMany,
		stats:   stats,
		trace:   p.trace,

		tlsRequired: c.RequireTLS,
	})
	p.unfollow = follow(users.Run)
	p.fronts.watchConnections(p.metrics.registry, nil)
	return p, nil
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

// serve serves until stop.
func (p *nodesProxy) serve(ln net.Listener) error {
	var udp net.PacketConn
	if p.secure {
		var err error
		if udp, err = net.ListenPacket("udp", ln.Addr().String()); err != nil {
			return errors.Join(fmt.Errorf("--listen, for HTTP/3: %w", err), ln.Close())
		}
	}
	served := make(chan error, 1)
	go func() { served <- p.fronts.serve(ln, udp) }()
	select {
	case err := <-served:
		if err != nil {
			err = fmt.Errorf("serve clients: %w", err)
		}
		return err
	case <-p.gateway.Done():
		return errors.Join(p.gateway.Err(), p.fronts.stop(context.Background()), <-served)
	}
}

func (p *nodesProxy) stop(ctx context.Context) error {
	err := errors.Join(p.fronts.stop(ctx), p.gateway.Close())
	p.fronts.wait()
	p.unfollow()
	if p.ids != nil {
		p.ids.close()
	}
	p.trace.Close()
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
			}{Why: backend.Status().NotReady, Connections: p.fronts.connections()}
			status.Ready = status.Why == ""
			if id := p.client.Cluster(); id != 0 {
				status.ClusterID = id.String()
			}
			return status
		},
		ready: func() string { return backend.Status().NotReady },
		checks: func() []httpapi.Check {
			checks := []httpapi.Check{{Name: "timestamps", Failed: backend.Status().NotReadyTimestamps}}
			if p.ids != nil {
				ids := httpapi.Check{Name: "ids"}
				if _, _, err := p.ids.Worker(); err != nil {
					ids.Failed = httpapi.FaultOf(err).Message
				}
				checks = append(checks, ids)
			}
			return checks
		},
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

var errNoWorker = isotone.Errorf(isotone.CodeNoWorker, "the cluster has leased no worker yet")

// Fill implements front.IDs.
func (l *leasedIDs) Fill(dst []snowflake.ID) error {
	g := l.generator.Load()
	if g == nil {
		return errNoWorker
	}
	return g.TryFill(dst)
}

// Worker implements front.IDs.
func (l *leasedIDs) Worker() (int, snowflake.Layout, error) {
	g := l.generator.Load()
	if g == nil {
		return 0, snowflake.Layout{}, errNoWorker
	}
	return g.Worker(), g.Layout(), nil
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
