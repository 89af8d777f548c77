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
	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/stats"
)

// Config is what a [Server] is made of. Only Backends is required.
type Config struct {
	// Backends are where requests go.
	Backends []Backend
	// Strategy chooses between them; "" means least busy.
	Strategy balance.Strategy
	// StickyKey says what requests stick to; only with balance.Sticky.
	StickyKey Key
	// StickyPercent bounds the load of a backend with balance.Sticky; 0 means
	// balance.StickyPercent, otherwise 100 to balance.StickyPercentMax.
	StickyPercent int
	// Health says how backends are checked.
	Health Health
	// Ejection says which backends get no requests because those fail.
	Ejection balance.EjectorConfig
	// Retry bounds retries in proportion to all requests.
	Retry balance.BudgetConfig
	// RetriesMax bounds retries of one request: less than 0 means none, 0 means 2.
	RetriesMax int
	// TrustForwarded keeps the X-Forwarded-* and Forwarded fields of clients, and adds to
	// them. It is for a proxy behind another one. Otherwise they are replaced, because
	// anybody can send them.
	TrustForwarded bool
	// TLS, if not nil, serves TLS on the same port, with HTTP/2. The server works on a copy.
	TLS *tls.Config
	// BackendTLS is for https backends; nil trusts the system's certificates. With an https
	// backend all requests take the general path.
	BackendTLS *tls.Config
	// Limits bounds the server; the zero value means the defaults.
	Limits Limits
	// Observe, if not nil, is called once for every request that was answered, or given up
	// (status 0). Backend is its position, or balance.None. It runs on the loop's goroutine
	// and on others, and must not block.
	Observe func(backend, status int, wall time.Duration)
	// LogRequests logs every request, not only those that fail here.
	LogRequests bool
	// Measured, if not nil, is called for one of Sample requests, with what it has cost
	// here; 0 means 1, that is, all. They are logged as well. The choice is that of
	// stats.Sampled. It must not block, either.
	//
	// The cost of requests in the lane is their share of the turns of the loop that have
	// dealt with them. On the general path it is that of the goroutine of the handler,
	// without those of the connection to the backend.
	Measured func(stats.Section)
	Sample   int
	// KeepProcessor lets the loop sleep without giving up its processor; see
	// loop.Loop.KeepProcessor.
	KeepProcessor bool
	// Log takes requests and the health of backends, and must not block: all requests
	// wait for it. Nil discards.
	Log *slog.Logger
}

// samples reports whether the request with this transaction ID is to be measured.
func (c *Config) samples(id []byte) bool { return c.Measured != nil && stats.Sampled(id, c.Sample) }

// reports reports whether a request is to be logged.
func (c *Config) reports(r *record) bool { return c.LogRequests || r.sampled || r.fault != nil }

// observe tells of a request that has ended.
func (c *Config) observe(r *record) {
	if c.Observe != nil {
		c.Observe(r.backend, r.status, r.section.Wall)
	}
	if r.sampled {
		c.Measured(r.section)
	}
}

// Backend is one HTTP server.
type Backend struct {
	// URL is http://host[:port] or https://host[:port], and nothing more.
	URL string
	// Weight is its share; 0 means 1.
	Weight int
}

// Health says how backends are checked beside what requests tell.
type Health struct {
	// Path is asked for with GET; 2xx and 3xx are healthy. "" means no checks.
	Path string
	// Interval is the time between checks. Default 2 s.
	Interval time.Duration
	// Timeout bounds one. Default 1 s.
	Timeout time.Duration
	// Fall and Rise are how many in a row take a backend down, and up again. Default 3
	// and 2.
	Fall, Rise int
}

// Limits bounds what clients and backends can make the proxy hold (I7). A field that is 0
// or less has its default.
type Limits struct {
	// ConnectionsMax bounds the connections of clients. One beyond it gets a 503 and is
	// closed. Default 20000, within a common file limit with those to backends.
	ConnectionsMax int
	// BackendConnectionsMax bounds the lane's connections to one backend; what is beyond
	// waits. Default 1024.
	BackendConnectionsMax int
	// WaitingMax bounds the requests that wait for a connection to one backend; beyond it
	// the answer is 503. Default 4096.
	WaitingMax int
	// RequestsMax bounds requests in work outside the lane; beyond it the answer is 503.
	// Default 4096: each holds a goroutine and some 70 KiB.
	RequestsMax int
	// BodyMax bounds the body of a request; beyond it the answer is 413. Default 64 MiB.
	// Nothing of that size is ever held.
	BodyMax int64
	// HeadTimeout bounds the time from the first byte of a request to the last of its
	// head (in the lane: of its body, too). Default 10 s.
	HeadTimeout time.Duration
	// IdleTimeout bounds the wait for the next request. Default 2 min.
	IdleTimeout time.Duration
	// WriteTimeout bounds how long a client may take nothing of its answer. Default 30 s.
	WriteTimeout time.Duration
	// ConnectTimeout bounds connecting to a backend. Default 2 s.
	ConnectTimeout time.Duration
	// AnswerTimeout bounds the wait for the head of an answer, all tries together; then
	// the answer is 504. Default 30 s.
	AnswerTimeout time.Duration
	// StreamTimeout bounds how long an answer that has begun may pause. Default 2 min.
	StreamTimeout time.Duration
}

const (
	// laneBodyMax bounds the bodies that the lane takes: they are held whole, until they
	// have been sent.
	laneBodyMax = 16 << 10
	// bodyRateMin is the slowest a body may come, in bytes a second, after the first
	// HeadTimeout.
	bodyRateMin = 1 << 10
	// idleBackendTime is how long a connection to a backend is kept unused. Common servers
	// close theirs after 5 s at the earliest; the shorter the wait, the fewer
	// requests meet a connection that is being closed.
	idleBackendTime = 4 * time.Second
)

func (l Limits) withDefaults() Limits {
	return Limits{
		ConnectionsMax:        orDefault(l.ConnectionsMax, 20000),
		BackendConnectionsMax: orDefault(l.BackendConnectionsMax, 1024),
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

// target is a backend's URL taken apart.
type target struct {
	name   string // for people: the URL
	scheme string
	addr   string // host:port
}

// parseTargets checks the backends.
func parseTargets(list []Backend) (targets []target, set *balance.Set, err error) {
	var weighted []balance.Backend
	for _, b := range list {
		u, err := url.Parse(b.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
			return nil, nil, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.200q: want http://host:port or https://host:port", b.URL)
		}
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, nil, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.200q: want a port from 1 to 65535", b.URL)
		}
		t := target{scheme: u.Scheme, addr: net.JoinHostPort(u.Hostname(), port)}
		t.name = t.scheme + "://" + t.addr
		targets = append(targets, t)
		weighted = append(weighted, balance.Backend{Name: t.name, Weight: b.Weight})
	}
	set, err = balance.NewSet(weighted...)
	if err != nil {
		return nil, nil, fmt.Errorf("proxy: %w", err)
	}
	return targets, set, nil
}
