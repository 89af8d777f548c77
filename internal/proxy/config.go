package proxy

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// Config configures a [Server]. Only Backends is required.
type Config struct {
	// Backends are the servers that requests are forwarded to.
	Backends []Backend
	// Strategy chooses the backend of a request; "" means balance.LeastBusy.
	Strategy balance.Strategy
	// StickyKey is the part of a request that it sticks to; only with balance.Sticky.
	StickyKey Key
	// StickyPercent bounds the load of a backend with balance.Sticky; 0 means
	// balance.StickyPercent, otherwise 100 to balance.StickyPercentMax.
	StickyPercent int
	// Health configures health checks.
	Health Health
	// Ejection configures which failing backends get no requests.
	Ejection balance.EjectorConfig
	// Retry bounds retries in proportion to all requests.
	Retry balance.BudgetConfig
	// RetriesMax bounds retries of one request: less than 0 means none, 0 means 2.
	RetriesMax int
	// TrustForwarded keeps the X-Forwarded-* and Forwarded fields of clients and appends to
	// them, for a proxy behind another one. Otherwise they are replaced, because any client
	// can forge them.
	TrustForwarded bool
	// TLS, if not nil, serves TLS on the same port, with HTTP/2. The server works on a copy.
	TLS *tls.Config
	// BackendTLS is for https backends; nil trusts the system's certificates. With any https
	// backend, all requests take the standard path.
	BackendTLS *tls.Config
	// Limits bounds the server; the zero value means the defaults.
	Limits Limits
	// Observe, if not nil, is called once for every request that was answered or abandoned
	// (status 0). backend is an index into Backends, or balance.None. It is called on the
	// loop's goroutine and on others, and must not block.
	Observe func(backend, status int, wall time.Duration)
	// LogRequests logs every request, not only those that fail here.
	LogRequests bool
	// Measured, if not nil, is called with the cost of one in Sample requests, as
	// stats.Sampled chooses them; 0 means 1, that is, all. They are logged as well. Like
	// Observe, it must not block.
	//
	// On the fast path the cost of a request is its share of the turns of the loop that have
	// served it. On the standard path it is that of the handler's goroutine, without those of
	// the connection to the backend.
	Measured func(stats.Section)
	Sample   int
	// Trace, if not nil, traces requests, and has backends continue the traces.
	Trace *trace.Exporter
	// KeepProcessor lets the loop sleep without giving up its processor; see
	// loop.Loop.KeepProcessor.
	KeepProcessor bool
	// Log receives lines about requests and the health of backends. It must not block,
	// because all requests wait for it. Nil discards.
	Log *slog.Logger
}

// balancing returns the part of c that is the balancer's.
func (c *Config) balancing() balancing {
	return balancing{
		backends: c.Backends, parse: parseURL, strategy: c.Strategy, stickyPercent: c.StickyPercent,
		ejection: c.Ejection, retry: c.Retry, retriesMax: c.RetriesMax, log: c.Log,
	}
}

// samples reports whether the request with this request ID is measured.
func (c *Config) samples(id []byte) bool { return c.Measured != nil && stats.Sampled(id, c.Sample) }

// reports reports whether a request is logged.
func (c *Config) reports(r *record) bool { return c.LogRequests || r.sampled || r.err != nil }

// observe reports a request that has ended.
func (c *Config) observe(r *record) {
	if c.Observe != nil {
		c.Observe(r.backend, r.status, r.section.Wall)
	}
	if r.sampled {
		c.Measured(r.section)
	}
}

// Backend is one server behind the proxy.
type Backend struct {
	// URL is http://host[:port] or https://host[:port]; of a backend of a [TCPServer], host:port.
	URL string
	// Weight is its share; 0 means 1.
	Weight int
}

// Health configures how backends are checked.
type Health struct {
	// Path is requested with GET; 2xx and 3xx are healthy. "" disables checks.
	Path string
	// Connect, of a [TCPServer] without a Path: a backend is healthy if it accepts a connection.
	Connect bool
	// Port, of a [TCPServer] with a Path: the port of the request, if not that of the backend.
	Port int
	// Interval is the time between checks. Default 2 s.
	Interval time.Duration
	// Timeout bounds one check. Default 1 s.
	Timeout time.Duration
	// Fall is how many consecutive failures take a backend down, Rise how many successes bring
	// it up again. Default 3 and 2.
	Fall, Rise int
}

// Limits bounds what clients and backends can make the proxy hold (I7). A field that is 0 or
// less means its default.
type Limits struct {
	// ConnectionsMax bounds the connections of clients; beyond it the answer is 503. Default
	// 20000, which together with those to backends is within a common file limit.
	ConnectionsMax int
	// BackendConnectionsMax bounds the fast path's connections to one backend; further
	// requests wait. Default 1024.
	BackendConnectionsMax int
	// WaitingMax bounds the requests that wait for a connection to one backend; beyond it
	// the answer is 503. Default 4096.
	WaitingMax int
	// RequestsMax bounds requests in progress on the standard path; beyond it the answer is
	// 503. Default 4096: each holds a goroutine and some 70 KiB.
	RequestsMax int
	// BodyMax bounds the body of a request, in bytes; beyond it the answer is 413. Default
	// 64 MiB. Bodies are streamed, not held.
	BodyMax int64
	// HeadTimeout bounds the time from the first byte of a request to the last of its
	// head (in the path: of its body, too). Default 10 s.
	HeadTimeout time.Duration
	// IdleTimeout bounds the wait for the next request. Default 2 min.
	IdleTimeout time.Duration
	// WriteTimeout bounds how long a client may read nothing of its answer. Default 30 s.
	WriteTimeout time.Duration
	// ConnectTimeout bounds connecting to a backend. Default 2 s.
	ConnectTimeout time.Duration
	// AnswerTimeout bounds the wait for the head of an answer, all tries together; beyond it
	// the answer is 504. Default 30 s.
	AnswerTimeout time.Duration
	// StreamTimeout bounds how long an answer that has begun may pause. Default 2 min.
	StreamTimeout time.Duration
}

const (
	// fastPathBodyMax bounds bodies on the fast path, which holds them until they are sent.
	fastPathBodyMax = 16 << 10
	// bodyRateMin is the minimum rate of a request's body after the first HeadTimeout, in
	// bytes per second.
	bodyRateMin = 1 << 10
	// idleBackendTime is how long an idle connection to a backend is kept. Common servers close
	// theirs after 5 s at the earliest, and a request must not meet a connection that is being
	// closed.
	idleBackendTime = 4 * time.Second
)

// backendConnectionsDefault is the default of Limits.BackendConnectionsMax.
const backendConnectionsDefault = 1024

// ConnectionsPerBackend bounds the connections to one backend by default: those of the fast path, and
// as many of the standard path.
const ConnectionsPerBackend = 2 * backendConnectionsDefault

func (l Limits) withDefaults() Limits {
	return Limits{
		ConnectionsMax:        orDefault(l.ConnectionsMax, 20000),
		BackendConnectionsMax: orDefault(l.BackendConnectionsMax, backendConnectionsDefault),
		WaitingMax:            orDefault(l.WaitingMax, 4096),
		RequestsMax:           orDefault(l.RequestsMax, 4096),
		BodyMax:               orDefault(l.BodyMax, 64<<20),
		HeadTimeout:           orDefault(l.HeadTimeout, 10*time.Second),
		IdleTimeout:           orDefault(l.IdleTimeout, 2*time.Minute),
		WriteTimeout:          orDefault(l.WriteTimeout, 30*time.Second),
		ConnectTimeout:        orDefault(l.ConnectTimeout, 2*time.Second),
		AnswerTimeout:         orDefault(l.AnswerTimeout, 30*time.Second),
		StreamTimeout:         orDefault(l.StreamTimeout, 2*time.Minute),
	}
}

func (h Health) withDefaults() Health {
	h.Interval = orDefault(h.Interval, 2*time.Second)
	h.Timeout = orDefault(h.Timeout, time.Second)
	h.Fall, h.Rise = orDefault(h.Fall, 3), orDefault(h.Rise, 2)
	return h
}

func orDefault[T cmp.Ordered](value, def T) T {
	var zero T
	if value <= zero {
		return def
	}
	return value
}

// Key names the part of a request that it sticks to: a header field or a parameter of the
// query. The zero value names nothing.
type Key struct {
	header string // in lower case
	query  string
}

// ParseKey reads header:NAME or query:NAME. Its errors match isotone.ErrInvalidArgument.
func ParseKey(s string) (Key, error) {
	where, name, _ := strings.Cut(s, ":")
	switch {
	case where == "header" && name != "" && head.Token.All([]byte(name)):
		return Key{header: strings.ToLower(name)}, nil
	case where == "query" && name != "" && !strings.ContainsAny(name, "&=;#%+ "):
		return Key{query: name}, nil
	}
	return Key{}, isotone.Errorf(isotone.CodeInvalidArgument, "sticky key %.100q: want header:NAME or query:NAME", s)
}

// target is a parsed backend.
type target struct {
	name   string // the URL, or host:port, for logs and metrics
	scheme string // "" behind a TCPServer
	addr   string // host:port
}

// parseURL parses the URL of an HTTP backend.
func parseURL(b Backend) (target, error) {
	u, err := url.Parse(b.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return target{}, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.200q: want http://host:port or https://host:port", b.URL)
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return target{}, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.200q: want a port from 1 to 65535", b.URL)
	}
	t := target{scheme: u.Scheme, addr: net.JoinHostPort(u.Hostname(), port)}
	t.name = t.scheme + "://" + t.addr
	return t, nil
}

// parseTargets parses and checks the backends, each by parse.
func parseTargets(list []Backend, parse func(Backend) (target, error)) (targets []target, set *balance.Set, err error) {
	var weighted []balance.Backend
	for _, b := range list {
		t, err := parse(b)
		if err != nil {
			return nil, nil, err
		}
		targets = append(targets, t)
		weighted = append(weighted, balance.Backend{Name: t.name, Weight: b.Weight})
	}
	set, err = balance.NewSet(weighted...)
	if err != nil {
		return nil, nil, fmt.Errorf("proxy: %w", err)
	}
	return targets, set, nil
}
