package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// spansMax bounds the finished spans that wait to be sent: about 2 MiB. Those beyond it are
	// dropped and counted.
	spansMax = 8192
	// batchMax is the most that one request to the collector has, as is usual with OpenTelemetry.
	batchMax = 512
	// flushEvery is how long a span waits for others at most.
	flushEvery = time.Second
	// sendTimeout bounds one request to the collector.
	sendTimeout = 10 * time.Second
	// triesMax is how often a batch is sent before it is given up, and retryPause the pause after
	// the first failure; it doubles.
	triesMax   = 3
	retryPause = time.Second
	// closeTime bounds how long Close waits for the collector.
	closeTime = 2 * time.Second
	// answerBytesMax bounds what is read of an answer.
	answerBytesMax = 64 << 10
)

// Config configures an [Exporter]. Endpoint and Service are required.
type Config struct {
	// Endpoint is the URL of the collector, with its path, such as
	// http://localhost:4318/v1/traces.
	Endpoint string
	// Sample traces one of so many requests that come without a trace; 0: none.
	Sample int
	// Service, Version and Instance describe this process.
	Service, Version, Instance string
	// Log takes one line when sending begins to fail, and one when it works again. Nil discards.
	Log *slog.Logger
}

// Counts are the spans of an exporter since its start.
type Counts struct {
	// Sent were taken by the collector. Dropped did not fit into the queue, or were left at the
	// end. Failed were given up, because the collector did not take them.
	Sent, Dropped, Failed uint64
}

// Exporter sends spans. Make it with [Start]. Its methods are safe for concurrent use, and do
// nothing on a nil exporter.
type Exporter struct {
	cfg    Config
	client http.Client
	wake   chan struct{} // a token while a whole batch waits
	stop   chan struct{} // closed by Close: nothing is tried again
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	waiting []Span
	closing bool
	counts  Counts
}

// Start returns an exporter; [Exporter.Close] ends it.
func Start(cfg Config) *Exporter {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Exporter{
		cfg: cfg, wake: make(chan struct{}, 1), stop: make(chan struct{}), cancel: cancel, ended: make(chan struct{}),
		client: http.Client{
			Timeout:       sendTimeout,
			Transport:     &http.Transport{Proxy: proxy, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: sendTimeout},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	go e.run(ctx)
	return e
}

// shown returns the endpoint for people: without user, password and query.
func (e *Exporter) shown() string {
	u, err := url.Parse(e.cfg.Endpoint)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery = nil, "", false
	return u.String()
}

// proxy is that of the environment. Its own error would repeat the variable, which may have a
// password.
func proxy(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	if err != nil {
		return nil, errors.New("HTTP_PROXY or HTTPS_PROXY is no URL")
	}
	return u, nil
}

// Add queues a finished span. It never blocks: a span for which there is no room is dropped.
func (e *Exporter) Add(s Span) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || len(e.waiting) >= spansMax {
		e.counts.Dropped++
		return
	}
	e.waiting = append(e.waiting, s)
	if len(e.waiting) >= batchMax {
		e.signal()
	}
}

func (e *Exporter) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Counts returns what became of the spans.
func (e *Exporter) Counts() (c Counts) {
	if e == nil {
		return c
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// Queue returns how many spans wait, and how many may.
func (e *Exporter) Queue() (length, limit int) {
	if e == nil {
		return 0, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting), spansMax
}

// Close sends what waits, for two seconds at most, and ends the exporter.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	if !e.closing {
		e.closing = true
		close(e.stop)
	}
	e.mu.Unlock()
	e.signal()
	timer := time.AfterFunc(closeTime, e.cancel)
	defer timer.Stop()
	<-e.ended
	e.cancel()
	e.client.CloseIdleConnections()
}

// run sends what waits until Close, or the end of ctx.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	failing := false
	for {
		batch, last := e.take()
		if len(batch) == 0 {
			if last {
				return
			}
			select {
			case <-tick.C:
			case <-e.wake:
			}
			continue
		}
		err := e.deliver(ctx, batch)
		e.count(len(batch), err)
		switch {
		case err != nil && !failing:
			e.cfg.Log.Warn("traces cannot be sent", "endpoint", e.shown(), "err", err)
		case err == nil && failing:
			e.cfg.Log.Info("traces are sent again", "endpoint", e.shown())
		}
		failing = err != nil
		if ctx.Err() != nil {
			e.abandon()
			return
		}
	}
}

// take takes up to a batch of what waits. last says that there will be no more after it.
func (e *Exporter) take() (batch []Span, last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.waiting), batchMax)
	batch = append(batch, e.waiting[:n]...)
	rest := copy(e.waiting, e.waiting[n:])
	clear(e.waiting[rest:])
	e.waiting = e.waiting[:rest]
	return batch, e.closing && rest == 0
}

// abandon drops what waits.
func (e *Exporter) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts.Dropped += uint64(len(e.waiting))
	e.waiting = nil
}

func (e *Exporter) count(n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.counts.Failed += uint64(n)
		return
	}
	e.counts.Sent += uint64(n)
}

// deliver sends a batch, and tries again if that may help.
func (e *Exporter) deliver(ctx context.Context, batch []Span) error {
	body := e.encode(batch)
	pause := retryPause
	for try := 1; ; try++ {
		again, err := e.send(ctx, body)
		if err == nil || !again || try == triesMax {
			return err
		}
		select {
		case <-time.After(pause):
		case <-e.stop:
			return err
		}
		pause *= 2
	}
}

// send sends one request. again says that another try may succeed.
func (e *Exporter) send(ctx context.Context, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "isotone/"+e.cfg.Version)
	answer, err := e.client.Do(r)
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err // without the URL, whose query may have a token
	}
	if err != nil {
		return !errors.Is(err, context.Canceled), err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("the collector answers %s: %.200q", answer.Status, text)
}
