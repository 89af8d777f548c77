package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// healthBodyMax bounds what is read of a check's answer, so that its connection can be reused.
const healthBodyMax = 64 << 10

// checker runs the health checks, with a goroutine for each backend.
type checker struct {
	cfg      *Config
	balancer *balancer
	client   http.Client
	running  sync.WaitGroup
}

func newChecker(cfg *Config, b *balancer) *checker {
	dialer := net.Dialer{Timeout: cfg.Health.Timeout}
	return &checker{cfg: cfg, balancer: b, client: http.Client{
		Timeout: cfg.Health.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: cfg.BackendTLS.Clone(), TLSHandshakeTimeout: cfg.Health.Timeout,
			MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: headBytesMax,
		},
		// A redirect counts as healthy and is not followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// start runs the checks until ctx ends. Backends are up until checks fail.
func (c *checker) start(ctx context.Context) {
	if c.cfg.Health.Path == "" {
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
	h := &c.cfg.Health
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
				c.cfg.Log.Warn("a backend is down", "backend", t.name, "why", why)
			} else {
				c.cfg.Log.Info("a backend is up again", "backend", t.name)
			}
		}
		timer.Reset(h.Interval)
	}
}

// check sends one request, and returns why the backend is unhealthy, or "".
func (c *checker) check(ctx context.Context, t *target) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.name+c.cfg.Health.Path, nil)
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
