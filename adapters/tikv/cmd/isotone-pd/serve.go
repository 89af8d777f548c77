package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/isotone/isotone/adapters/tikv/gateway"
	"github.com/isotone/isotone/adapters/tikv/timelock"
	"github.com/isotone/isotone/adapters/tikv/zero"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/host/listen"
)

// cluster is where timestamps come from.
type cluster interface {
	gateway.Source
	Close() error
}

// dialer returns a cluster, which need not be up yet.
type dialer func(client.Options) (cluster, error)

func connect(o client.Options) (cluster, error) {
	return client.NewWith(context.Background(), o)
}

// serve serves until ctx is done or a listener fails.
func (c *command) serve(ctx context.Context, dial dialer, log *slog.Logger) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Lazy = true
	counts := newCounts()
	o.Hooks = counts.hooks(log)
	certs, err := c.certificates(log)
	if err != nil {
		return err
	}
	lns, err := c.listen()
	if err != nil {
		return err
	}
	members, err := c.members(lns.pd.Addr())
	if err != nil {
		return errors.Join(err, lns.close())
	}
	source, err := dial(o)
	if err != nil {
		return errors.Join(err, lns.close())
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	grpc, err := gateway.New(gateway.Config{
		Source: source, Members: members, Timeout: c.Timeout, ConnectionsMax: c.MaxConnections, TLS: certs.config("h2"), Refused: certs.ended, Log: log,
	})
	if err != nil {
		return errors.Join(err, lns.close())
	}
	log.Info("serving clients of PD", "listen", lns.pd.Addr().String(), "http", addrOf(lns.http), "admin", addrOf(lns.admin), "members", members, "nodes", o.Addrs)
	return c.run(ctx, log, certs, lns, servers{grpc, c.web(source, certs, log), admin(grpc, counts, log)})
}

// lends reports whether the gateway has rights of its own at the nodes.
func (c *command) lends() bool { return c.User != "" || c.Cert != "" }

// servers are those of the listeners.
type servers struct {
	pd         *gateway.Server
	web, admin *http.Server
}

// run serves until ctx is done or a listener fails, then drains. Operators are served until the end.
func (c *command) run(ctx context.Context, log *slog.Logger, certs *certificates, lns *listeners, s servers) error {
	served := make(chan error, 3)
	var work sync.WaitGroup
	defer work.Wait()
	watching, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	work.Go(func() { certs.watch(watching) })
	defer func() { _ = s.admin.Close() }()
	if lns.admin != nil {
		work.Go(func() {
			bounded := listen.NewBounded(lns.admin, adminConnectionsMax, adminConnectionsMax/2)
			s.admin.ConnState = bounded.Follow
			served <- named("--admin", serveHTTP(s.admin, bounded))
		})
	}
	work.Go(func() { served <- named("--listen", s.pd.Serve(lns.pd)) })
	if lns.http != nil {
		work.Go(func() {
			served <- named("--listen-http", serveHTTP(s.web, listen.NewBounded(lns.http, c.MaxConnections, address.Share(c.MaxConnections))))
		})
	}
	var failure error
	select {
	case failure = <-served:
	case <-ctx.Done():
		log.Info("stopping", "signal", context.Cause(ctx).Error())
	}
	draining, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	if err := errors.Join(s.pd.Shutdown(draining), s.web.Shutdown(draining)); err != nil {
		log.Warn("requests were cut off; a longer --drain-timeout waits for them", "err", err)
		_ = s.web.Close()
	}
	log.Info("stopped")
	return failure
}

func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// The bounds of HTTP requests, which are one line and few fields.
const (
	httpHeadTimeout = 10 * time.Second
	httpIdleTimeout = 2 * time.Minute
	httpHeadMax     = 16 << 10
)

// web returns the server of the HTTP forms.
func (c *command) web(source cluster, certs *certificates, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/assign", zero.Handler(source))
	mux.Handle("/", timelock.Handler(source))
	bounded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && certs.ended(r.TLS.VerifiedChains) {
			w.Header().Set("Connection", "close")
			http.Error(w, "the certificate of this client has ended or was revoked", http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), c.Timeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
	return &http.Server{
		Handler: bounded, TLSConfig: certs.config("http/1.1"), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: httpHeadTimeout, ReadTimeout: httpHeadTimeout, WriteTimeout: c.Timeout + httpHeadTimeout,
		IdleTimeout: httpIdleTimeout, MaxHeaderBytes: httpHeadMax,
	}
}

func serveHTTP(web *http.Server, ln net.Listener) error {
	var err error
	if web.TLSConfig != nil {
		err = web.ServeTLS(ln, "", "")
	} else {
		err = web.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// listeners are the open ports. http and admin are nil without their flags.
type listeners struct{ pd, http, admin net.Listener }

func (c *command) listen() (*listeners, error) {
	var l listeners
	var faults []error
	open := func(flag, addr string) net.Listener {
		if addr == "" {
			return nil
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			faults = append(faults, named(flag, err))
			return nil
		}
		return ln
	}
	l.pd, l.http, l.admin = open("--listen", c.Listen), open("--listen-http", c.ListenHTTP), open("--admin", c.Admin)
	if len(faults) > 0 {
		return nil, errors.Join(errors.Join(faults...), l.close())
	}
	return &l, nil
}

// addrOf returns the address of a port; "" if it is not open.
func addrOf(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}

func (l *listeners) close() error {
	var faults []error
	for _, ln := range []net.Listener{l.pd, l.http, l.admin} {
		if ln != nil {
			faults = append(faults, ln.Close())
		}
	}
	return errors.Join(faults...)
}

// certificates are those of this gateway; nil: no TLS.
type certificates struct{ reloader *credential.Reloader }

func (c *command) certificates(log *slog.Logger) (*certificates, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	r, err := credential.Open(credential.Config{
		CertFile: c.TLSCert, KeyFile: c.TLSKey, CertSetting: "--tls-cert", KeySetting: "--tls-key",
		ClientCAFile: c.TLSClientCA, ClientCASetting: "--tls-client-ca", ClientCRLFile: c.TLSClientCRL, ClientCRLSetting: "--tls-client-crl", Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &certificates{r}, nil
}

func (c *certificates) config(protocol string) *tls.Config {
	if c == nil {
		return nil
	}
	return c.reloader.TLS(protocol)
}

// ended reports whether a client's certificate, which was verified with these chains, is no longer valid. It returns false without chains.
func (c *certificates) ended(chains [][]*x509.Certificate) bool {
	return c != nil && len(chains) > 0 && c.reloader.Ended(chains)
}

func (c *certificates) watch(ctx context.Context) {
	if c != nil {
		c.reloader.Run(ctx)
	}
}
