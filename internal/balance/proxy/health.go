package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// healthBodyMax is how much of a check's answer is read, so that its connection can be
// used again.
const healthBodyMax = 64 << 10

// checker asks backends how they are, each in a goroutine of its own.
type checker struct {
	cfg      *Config
	director *director
	client   http.Client
	running  sync.WaitGroup
}

func newChecker(cfg *Config, d *director) *checker {
	dialer := net.Dialer{Timeout: cfg.Health.Timeout}
	return &checker{cfg: cfg, director: d, client: http.Client{
		Timeout: cfg.Health.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: cfg.BackendTLS.Clone(), TLSHandshakeTimeout: cfg.Health.Timeout,
			MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: headBytesMax,
		},
		// A redirect is an answer, and where it leads is somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// start begins to check until ctx ends. Backends are up until a check says otherwise.
func (c *checker) start(ctx context.Context) {
	if c.cfg.Health.Path == "" {
		return
	}
	for i := range c.director.targets {
		c.running.Go(func() { c.watch(ctx, i) })
	}
}

// wait returns when all checks have ended.
func (c *checker) wait() {
	c.running.Wait()
	c.client.CloseIdleConnections()
}

// watch is the goroutine for one backend.
func (c *checker) watch(ctx context.Context, i int) {
	h := &c.cfg.Health
	t := &c.director.targets[i]
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
			c.director.setDown(i, down)
			if down {
				c.cfg.Log.Warn("a backend is down", "backend", t.name, "why", why)
			} else {
				c.cfg.Log.Info("a backend is up again", "backend", t.name)
			}
		}
		timer.Reset(h.Interval)
	}
}

// check asks once, and returns what is wrong, or "".
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
