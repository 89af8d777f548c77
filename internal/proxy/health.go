package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// healthBodyMax bounds what is read of a check's answer, so that its connection can be reused.
const healthBodyMax = 64 << 10

// checker runs the health checks, with a goroutine for each backend.
type checker struct {
	health   Health
	balancer *balancer
	// check checks a backend once, and returns why it is unhealthy, or "". Nil: no checks.
	check   func(context.Context, *target) string
	client  http.Client
	running sync.WaitGroup
}

// newHTTPChecker returns the checker of a [Server].
func newHTTPChecker(cfg *Config, b *balancer) *checker {
	c := newChecker(cfg.Health, b, cfg.BackendTLS)
	if cfg.Health.Path != "" {
		c.check = func(ctx context.Context, t *target) string { return c.get(ctx, t.name+cfg.Health.Path) }
	}
	return c
}

// newTCPChecker returns the checker of a [TCPServer].
func newTCPChecker(health Health, b *balancer) *checker {
	c := newChecker(health, b, nil)
	switch {
	case health.Path != "":
		c.check = func(ctx context.Context, t *target) string {
			addr := t.addr
			if host, _, err := net.SplitHostPort(addr); err == nil && health.Port != 0 {
				addr = net.JoinHostPort(host, strconv.Itoa(health.Port))
			}
			return c.get(ctx, "http://"+addr+health.Path)
		}
	case health.Connect:
		c.check = c.connect
	}
	return c
}

func newChecker(health Health, b *balancer, secure *tls.Config) *checker {
	dialer := net.Dialer{Timeout: health.Timeout}
	return &checker{health: health, balancer: b, client: http.Client{
		Timeout: health.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: secure.Clone(), TLSHandshakeTimeout: health.Timeout,
			MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: headBytesMax,
		},
		// A redirect counts as healthy and is not followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// start runs the checks until ctx ends. Backends are up until checks fail.
func (c *checker) start(ctx context.Context) {
	if c.check == nil {
		return
	}
	for i := range c.balancer.targets {
		c.running.Go(func() { c.watch(ctx, i) })
	}
}

// wait returns when all goroutines have ended.
func (c *checker) wait() {
	c.running.Wait()
	c.client.CloseIdleConnections()
}

// watch is the goroutine for one backend.
func (c *checker) watch(ctx context.Context, i int) {
	h := &c.health
	t := &c.balancer.targets[i]
	timer := time.NewTimer(0)
	defer timer.Stop()
	down, row := false, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		why := c.check(ctx, t)
		if ctx.Err() != nil {
			return
		}
		if (why != "") == down {
			row = 0
		} else if row++; !down && row >= h.Fall || down && row >= h.Rise {
			down, row = !down, 0
			c.balancer.setDown(i, down)
			if down {
				c.balancer.log.Warn("a backend is down", "backend", t.name, "why", why)
			} else {
				c.balancer.log.Info("a backend is up again", "backend", t.name)
			}
		}
		timer.Reset(h.Interval)
	}
}

// connect opens and closes a connection.
func (c *checker) connect(ctx context.Context, t *target) string {
	dialer := net.Dialer{Timeout: c.health.Timeout}
	nc, err := dialer.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return err.Error()
	}
	_ = nc.Close()
	return ""
}

// get sends one request.
func (c *checker) get(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("User-Agent", "isotone-proxy")
	resp, err := c.client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, healthBodyMax))
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return resp.Status
	}
	return ""
}
