package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
	"github.com/isotone/isotone/internal/server"
)

type proxyCmd struct {
	Listen  string   `name:"listen" short:"l" default:":8090" placeholder:"HOST:PORT" help:"Where to serve clients. Default: ${default}."`
	Admin   string   `name:"admin" placeholder:"HOST:PORT" help:"Where to serve operators: /metrics, /proxy/status, /up, /ready, /livez, /readyz, and, for programs on this machine, profiles of this process below /debug/pprof/. It has no access control: only operators should reach it. Default: nowhere."`
	Backend []string `name:"backend" short:"b" sep:"none" placeholder:"URL[,WEIGHT]" help:"An HTTP server to forward to, http://host:port, or with --tcp any server, host:port; repeatable."`
	TCP     bool     `name:"tcp" help:"Forward TCP connections of any protocol to the backends, as they are: each connection to one of them. TLS passes through."`
	Node    []string `name:"node" short:"n" placeholder:"HOST:PORT" help:"Instead of backends: the nodes of one Isotone cluster, as HOST:PORT or https://HOST:PORT. The proxy serves what they serve, and bundles requests."`

	proxyBackends `group:"With --backend:"`
	proxyHTTP     `group:"With --backend, for HTTP:"`
	proxyTCP      `group:"With --backend and --tcp:"`
	proxyNodes    `group:"With --node:"`

	MaxConnections int    `name:"max-connections" default:"20000" help:"Maximum number of client connections."`
	TLSCert        string `name:"tls-cert" placeholder:"FILE" complete:"files" help:"Certificate, to serve TLS on the same port. Replaced files are used without a restart."`
	TLSKey         string `name:"tls-key" placeholder:"FILE" complete:"files" help:"Its key."`

	RequestStats       bool `name:"request-stats" help:"Measure every HTTP request: wall clock and CPU times, on /metrics and in one log line each."`
	RequestStatsSample int  `name:"request-stats-sample" default:"1" placeholder:"N" help:"With --request-stats: measure one in N requests. Default: ${default}."`

	TraceEndpoint string `name:"trace-endpoint" placeholder:"URL" help:"Send traces of requests to this OpenTelemetry collector, by OTLP over HTTP as JSON, such as http://localhost:4318. Default: nothing is traced."`
	TraceSample   int    `name:"trace-sample" default:"100" placeholder:"N" help:"With --trace-endpoint: trace one in N requests that come without a trace; 0: none of them. A request that comes with one is traced if it is marked as sampled. Default: ${default}."`

	Debug  bool `name:"debug" help:"Log more."`
	Pretty bool `name:"pretty" help:"Log plain text instead of JSON."`

	set []*kong.Flag // those that were set on the command line
}

// AfterApply notes which flags were set.
func (c *proxyCmd) AfterApply(ctx *kong.Context) error {
	for _, step := range ctx.Path {
		if step.Flag != nil && !slices.Contains(c.set, step.Flag) {
			c.set = append(c.set, step.Flag)
		}
	}
	return nil
}

// misplaced returns an error for each flag that was set and has no effect.
func (c *proxyCmd) misplaced() (problems []error) {
	goes := map[string]string{"With --node:": "goes with --node, not with --backend"}
	switch {
	case len(c.Node) > 0:
		goes = map[string]string{}
		for _, group := range []string{"With --backend:", groupHTTP, groupTCP} {
			goes[group] = "goes with --backend, not with --node"
		}
	case c.TCP:
		goes[groupHTTP] = "goes with HTTP backends, not with --tcp"
	default:
		goes[groupTCP] = "goes with --tcp"
	}
	for _, f := range c.set {
		name := f.Name
		if f.Negated {
			name = "no-" + name
		}
		why := ""
		if f.Group != nil {
			why = goes[f.Group.Key]
		} else if c.TCP {
			why = notTCP[f.Name]
		}
		switch {
		case why != "":
			problems = append(problems, fmt.Errorf("--%s %s", name, why))
		case f.Name == "request-stats-sample" && !c.RequestStats:
			problems = append(problems, fmt.Errorf("--%s goes with --request-stats", f.Name))
		case f.Name == "trace-sample" && c.TraceEndpoint == "":
			problems = append(problems, fmt.Errorf("--%s goes with --trace-endpoint", f.Name))
		}
	}
	return problems
}

// Groups of flags.
const (
	groupHTTP = "With --backend, for HTTP:"
	groupTCP  = "With --backend and --tcp:"
)

// notTCP has the flags without a group that do not go with --tcp, and why.
var notTCP = map[string]string{
	"node":                 "has no --tcp: it serves HTTP and the Redis protocol; use --backend",
	"tls-cert":             "does not go with --tcp: TLS passes through to the backends, which have the certificates",
	"tls-key":              "does not go with --tcp: TLS passes through to the backends, which have the certificates",
	"request-stats":        "goes with HTTP backends, not with --tcp",
	"request-stats-sample": "goes with HTTP backends, not with --tcp",
	"trace-endpoint":       "goes with HTTP backends, not with --tcp",
	"trace-sample":         "goes with HTTP backends, not with --tcp",
}

// proxyBackends has the flags that go with --backend, for any protocol.
type proxyBackends struct {
	Strategy       string        `name:"strategy" default:"least-busy" complete:"random,round-robin,least-busy,p2c,sticky" help:"random, round-robin, least-busy, p2c (the less busy of two) or sticky (by --sticky-key; with --tcp, by the address of the client)."`
	StickyPercent  int           `name:"sticky-percent" default:"125" placeholder:"PERCENT" help:"With --strategy sticky: bound on the load of a backend, relative to its share. Use a larger one where answers are cached. Default: ${default}."`
	HealthPath     string        `name:"health-path" placeholder:"PATH" help:"Request this path from backends, and use only those that answer 2xx or 3xx. Default: no checks; with --tcp, whether they accept connections."`
	HealthInterval time.Duration `name:"health-interval" default:"2s" help:"Interval between checks of a backend."`
	HealthTimeout  time.Duration `name:"health-timeout" default:"1s" help:"Timeout of a check."`
	EjectFailures  int           `name:"eject-failures" default:"5" help:"Consecutive failures that eject a backend: it gets no requests for a while. With --tcp, connections that it does not accept are failures."`
	EjectTime      time.Duration `name:"eject-time" default:"5s" help:"Duration of the first ejection; each further one doubles."`
	Retries        int           `name:"retries" default:"2" help:"Maximum number of retries of an idempotent request; with --tcp, how many more backends are tried for a connection."`
	RetryPercent   int           `name:"retry-percent" default:"20" help:"Retries allowed, in percent of the requests (with --tcp, connections) of the latest ten seconds, plus three per second."`
}

// proxyHTTP has the flags that go with --backend for HTTP.
type proxyHTTP struct {
	StickyKey      string        `name:"sticky-key" placeholder:"header:NAME|query:NAME" complete:"header:,query:" help:"The part of a request by which it sticks to a backend; with --strategy sticky."`
	MaxBody        int64         `name:"max-body" default:"67108864" help:"Maximum body of a request, in bytes."`
	HeadTimeout    time.Duration `name:"head-timeout" default:"10s" help:"Timeout for the head of a request to arrive."`
	AnswerTimeout  time.Duration `name:"answer-timeout" default:"30s" help:"Timeout for a backend's answer to begin."`
	StreamTimeout  time.Duration `name:"stream-timeout" default:"2m" help:"Maximum pause within an answer."`
	BackendCA      string        `name:"backend-ca" placeholder:"FILE" complete:"files" help:"PEM file of the CA certificates for https backends. Default: those of the system."`
	TrustForwarded bool          `name:"trust-forwarded" help:"Keep the X-Forwarded-* fields of clients that are proxies themselves."`
	LogRequests    bool          `name:"log-requests" help:"Log every request, not only those that the proxy fails."`
}

// Run forwards requests until a signal or a failure ends it.
func (c *proxyCmd) Run(ctx context.Context, con console) error {
	log := startLog(con.err, telemetry.LogOptions{Debug: c.Debug, Pretty: c.Pretty})
	defer log.Close()
	loops := 1
	if c.TCP {
		loops = 0
	}
	server.TuneRuntime(loops)
	certificate, err := c.certificate(log.Logger)
	if err != nil {
		return err
	}
	p, err := c.start(certificate, log)
	if err != nil {
		return err
	}
	if certificate != nil {
		watch, end := context.WithCancel(context.Background())
		var watching sync.WaitGroup
		defer watching.Wait()
		defer end()
		watching.Go(func() { certificate.Run(watch) })
	}
	addrs := server.ProxyAddrs{Listen: c.Listen, Admin: c.Admin, To: strings.Join(append(c.Backend, c.Node...), " ")}
	limit := server.DrainTimeout
	if c.TCP {
		limit = c.DrainTimeout
	}
	return server.ServeProxy(ctx, p, addrs, func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), limit)
	}, log.Logger)
}

// start starts the proxy that the flags describe. Its errors list everything that is wrong
// with them.
func (c *proxyCmd) start(certificate *credential.Reloader, log *telemetry.Log) (p server.Proxy, err error) {
	cfg, err := c.check()
	if err != nil {
		return nil, err
	}
	o := server.ProxyOptions{Version: version, TraceEndpoint: c.TraceEndpoint, TraceSample: c.TraceSample, Log: log}
	if c.RequestStats {
		o.StatsSample = c.RequestStatsSample
	}
	if certificate != nil {
		cfg.TLS = certificate.TLS()
	}
	switch {
	case c.TCP:
		p, err = server.StartTCPProxy(c.tcp(), o)
	case len(c.Node) > 0:
		return c.startGateway(cfg.TLS, o)
	default:
		p, err = server.StartHTTPProxy(cfg, o)
	}
	if err != nil {
		return nil, usageError(err.Error())
	}
	return p, nil
}

// flagErrors collects what is wrong with the flags.
type flagErrors []error

func (f *flagErrors) add(errs ...error) { *f = append(*f, errs...) }

func (f *flagErrors) note(flag string, err error) {
	if err != nil {
		f.add(fmt.Errorf("--%s: %w", flag, err))
	}
}

// check checks all flags and returns the configuration for --backend.
func (c *proxyCmd) check() (proxy.Config, error) {
	var found flagErrors
	if (len(c.Backend) == 0) == (len(c.Node) == 0) {
		found.add(errors.New("want either --backend or --node"))
	} else {
		found.add(c.misplaced()...)
	}
	switch {
	case c.Advertise == "":
	case !address.Valid(c.Advertise, 1):
		found.add(fmt.Errorf("--advertise %.100q: want HOST:PORT, as clients reach it, at most %d bytes", c.Advertise, address.SizeMax))
	case address.Unspecified(c.Advertise):
		found.add(fmt.Errorf("--advertise %q: want a host name or an IP address at which clients reach the proxy, such as 10.0.0.1; only --listen, where it listens, may be every interface", c.Advertise))
	}
	found.add(checkListen("listen", c.Listen))
	if c.Admin != "" {
		found.add(checkListen("admin", c.Admin))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		found.add(errors.New("--tls-cert and --tls-key go together"))
	}
	if c.RequireTLS && c.TLSCert == "" {
		found.add(errors.New("--require-tls needs --tls-cert and --tls-key"))
	}
	if c.RequestStatsSample < 1 {
		found.add(errors.New("--request-stats-sample: want 1 or more"))
	}
	c.checkTracing(&found)
	c.checkTCP(&found)
	cfg := c.config(&found)
	if err := errors.Join(found...); err != nil {
		return cfg, usageError(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return cfg, nil
}

// certificate opens the certificate; nil if there is none, or check will say what is missing.
func (c *proxyCmd) certificate(log *slog.Logger) (*credential.Reloader, error) {
	if c.TLSCert == "" || c.TLSKey == "" || c.TCP {
		return nil, nil
	}
	r, err := credential.Open(credential.Config{CertFile: c.TLSCert, KeyFile: c.TLSKey, CertSetting: "--tls-cert", KeySetting: "--tls-key", Log: log})
	if err != nil {
		return nil, usageError(err.Error())
	}
	return r, nil
}

// checkListen returns an error unless addr is an address to listen on.
func checkListen(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("--%s %q: want HOST:PORT or :PORT", flag, addr)
	}
	return nil
}

// config returns the configuration that the flags describe.
func (c *proxyCmd) config(found *flagErrors) proxy.Config {
	cfg := proxy.Config{
		StickyPercent: c.StickyPercent, RetriesMax: orNone(c.Retries), TrustForwarded: c.TrustForwarded, LogRequests: c.LogRequests, KeepProcessor: true,
		Health:   proxy.Health{Path: c.HealthPath, Interval: c.HealthInterval, Timeout: c.HealthTimeout},
		Ejection: balance.EjectorConfig{FailuresMax: c.EjectFailures, Base: c.EjectTime},
		Retry:    balance.BudgetConfig{Percent: orNone(c.RetryPercent)},
		Limits: proxy.Limits{
			ConnectionsMax: c.MaxConnections, BodyMax: c.MaxBody, HeadTimeout: c.HeadTimeout,
			AnswerTimeout: c.AnswerTimeout, StreamTimeout: c.StreamTimeout,
		},
	}
	c.checkValues(found)
	if c.BackendCA != "" {
		pem, err := os.ReadFile(c.BackendCA)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate in it")
		}
		found.note("backend-ca", err)
		cfg.BackendTLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c.chooseStrategy(&cfg, found)
	cfg.Backends = c.backends(found)
	return cfg
}

// checkValues checks paths, durations and numbers.
func (c *proxyCmd) checkValues(found *flagErrors) {
	if _, err := url.ParseRequestURI(c.HealthPath); c.HealthPath != "" && (err != nil || !strings.HasPrefix(c.HealthPath, "/")) {
		found.note("health-path", fmt.Errorf("%q: want a path that begins with /", c.HealthPath))
	}
	for flag, d := range map[string]time.Duration{
		"health-interval": c.HealthInterval, "health-timeout": c.HealthTimeout, "eject-time": c.EjectTime,
		"head-timeout": c.HeadTimeout, "answer-timeout": c.AnswerTimeout, "stream-timeout": c.StreamTimeout,
		"dial-timeout": c.DialTimeout,
	} {
		if d <= 0 {
			found.note(flag, errors.New("want more than 0"))
		}
	}
	for _, each := range []struct {
		flag       string
		value, min int64
	}{
		{"max-connections", int64(c.MaxConnections), 1}, {"max-body", c.MaxBody, 1}, {"eject-failures", int64(c.EjectFailures), 1},
		{"retries", int64(c.Retries), 0}, {"retry-percent", int64(c.RetryPercent), 0},
	} {
		if each.value < each.min {
			found.add(fmt.Errorf("--%s %d: want %d or more", each.flag, each.value, each.min))
		}
	}
}

// chooseStrategy sets the strategy and its key.
func (c *proxyCmd) chooseStrategy(cfg *proxy.Config, found *flagErrors) {
	var err error
	if cfg.Strategy, err = balance.ParseStrategy(c.Strategy); err != nil {
		found.note("strategy", err)
	} else if c.StickyKey == "" && cfg.Strategy == balance.Sticky && !c.TCP {
		found.add(errors.New("--strategy sticky needs --sticky-key header:NAME or query:NAME"))
	} else if c.StickyKey != "" && cfg.Strategy != balance.Sticky {
		found.add(errors.New("--sticky-key goes with --strategy sticky"))
	}
	if c.StickyKey != "" {
		cfg.StickyKey, err = proxy.ParseKey(c.StickyKey)
		found.note("sticky-key", err)
	}
}

// backends parses the --backend flags.
func (c *proxyCmd) backends(found *flagErrors) (list []proxy.Backend) {
	for _, b := range c.Backend {
		address, weight, weighted := strings.Cut(b, ",")
		backend := proxy.Backend{URL: address}
		if weighted {
			var err error
			if backend.Weight, err = strconv.Atoi(weight); err != nil || backend.Weight < 1 {
				found.note("backend", fmt.Errorf("weight %q: want a whole number from 1", weight))
			}
		}
		list = append(list, backend)
	}
	return list
}
