package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// Gateway serves what a node serves, from a cluster behind it.
type Gateway struct {
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

func (s clusterSource) Timestamps(ctx context.Context, w forward.Want) (isotone.Range, error) {
	return readerOf(s.Client, w).Timestamps(ctx, w.Count)
}

func (s clusterSource) Timestamps64(ctx context.Context, w forward.Want) (isotone.Range64, error) {
	return readerOf(s.Client, w).Timestamps64(ctx, w.Count)
}

func (s clusterSource) ReadWrite(ctx context.Context, w forward.Want) (ms uint64, err error) {
	return readWrite(ctx, s.Client, w)
}

// GatewayConfig says which cluster a gateway serves, and to whom. Client, Addr and Users are required.
type GatewayConfig struct {
	// Client says how the cluster is reached. Lazy, Hooks and TraceParent are set by the gateway.
	Client client.Options
	// Addr is the address that clients are told as the leader's.
	Addr string
	// Mode is for requests that name none.
	Mode isotone.ReadMode
	// Users are those that may use the gateway.
	Users *access.Control
	// TLS, if not nil, is served on the client port as well; TLSRequired refuses clients without it.
	TLS         *tls.Config
	TLSRequired bool
	// ConnectionsMax bounds the connections of clients; fewer are allowed where files are scarce.
	ConnectionsMax int
	// IDs: make Snowflake IDs with a worker that the cluster leases.
	IDs bool
}

// UnusableClientError is an error of [GatewayConfig.Client].
type UnusableClientError struct{ Err error }

func (e *UnusableClientError) Error() string { return e.Err.Error() }
func (e *UnusableClientError) Unwrap() error { return e.Err }

// StartGateway starts a gateway. If its client cannot be made of c.Client, the error is an [UnusableClientError].
func StartGateway(c GatewayConfig, o ProxyOptions) (*Gateway, error) {
	log := o.Log.Logger
	p := &Gateway{metrics: newProxyMetrics(o.Version), secure: c.TLS != nil}
	o.Log.Watch(p.metrics.registry)
	p.metrics.watchCluster()
	c.Client.Lazy, c.Client.TraceParent, c.Client.Hooks = true, traceparent, p.metrics.hooks(log)
	var err error
	if p.client, err = client.NewWith(context.Background(), c.Client); err != nil {
		return nil, &UnusableClientError{err}
	}
	p.gateway, err = forward.StartGateway(forward.Config{Source: clusterSource{p.client}, Cluster: p.client.Cluster, Addr: c.Addr}, true, log)
	if err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	var ids front.IDs
	if c.IDs {
		p.ids = leaseIDs(p.client, log)
		ids = p.ids
	}
	var stats *requestStats
	if o.StatsSample > 0 {
		stats = newRequestStats(o.StatsSample, telemetry.NewRequestStats(p.metrics.registry), log)
	}
	p.trace = o.startTracing(p.metrics.registry)
	connections := limitProxyConnections(c.ConnectionsMax, 0, OpenFiles(), log)
	c.Users.Share(access.ClientPool, connections)
	p.fronts = newFronts(frontsConfig{
		version: o.Version,
		server:  p.gateway,
		web: web.Config{
			Backend: p.gateway.Backend(), IDs: ids, Mode: c.Mode, TLS: c.TLS, Observe: p.metrics.observeOne, Log: log, Access: c.Users,
			Limits: web.Limits{ConnectionsMax: connections},
		},
		ids:     func(int) front.IDs { return ids },
		observe: p.metrics.observeMany,
		stats:   stats,
		trace:   p.trace,

		tlsRequired: c.TLSRequired,
	})
	p.unfollow = follow(c.Users.Run)
	p.fronts.watchConnections(p.metrics.registry, nil)
	return p, nil
}

// Serve implements Proxy.
func (p *Gateway) Serve(ln net.Listener) error {
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

// Stop implements Proxy.
func (p *Gateway) Stop(ctx context.Context) error {
	err := errors.Join(p.fronts.stop(ctx), p.gateway.Close())
	p.fronts.wait()
	p.unfollow()
	if p.ids != nil {
		p.ids.close()
	}
	p.trace.Close()
	return errors.Join(err, p.client.Close())
}

// Admin implements Proxy.
func (p *Gateway) Admin() http.Handler {
	backend := p.gateway.Backend()
	pages := proxyAdmin{
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
	return pages.handler()
}

// follow runs f until the function that it returns is called, which waits for its end.
func follow(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
