package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/core/lincheck"
)

const (
	// callTimeout bounds a call with all its retries, and so how long a failover may take before
	// calls fail.
	callTimeout = 10 * time.Second
	// callPause is the time between an answer and the client's next call. It leaves most of a small
	// machine to the nodes.
	callPause = time.Millisecond
)

// load has clients ask for timestamps all the time.
type load struct {
	tally   *tally
	online  *lincheck.Online
	began   time.Time
	clients []*client.Client
	quit    chan struct{}
	callers sync.WaitGroup

	mu        sync.Mutex
	violation string // the first
}

// connect connects clients with the nodes at addrs.
func connect(ctx context.Context, addrs []string, count int) (*load, error) {
	l := &load{tally: newTally(), online: lincheck.NewOnline(0), quit: make(chan struct{})}
	for range count {
		c, err := client.New(ctx, addrs...)
		if err != nil {
			l.closeClients()
			return nil, fmt.Errorf("a client found no leader: %w", err)
		}
		l.clients = append(l.clients, c)
	}
	return l, nil
}

// start begins to count, and to ask.
func (l *load) start() {
	l.began = time.Now()
	for _, c := range l.clients {
		l.callers.Go(func() { l.run(c) })
	}
}

// now returns the time since the load began.
func (l *load) now() time.Duration { return time.Since(l.began) }

// run asks until the load stops.
func (l *load) run(c *client.Client) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-pause.C:
		}
		l.call(c)
		pause.Reset(callPause)
	}
}

// call asks once, and checks the answer.
func (l *load) call(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	floor := l.online.Begin()
	sent := l.now()
	ts, err := c.Timestamp(ctx)
	if err != nil {
		l.tally.failure(err)
		return
	}
	now := l.now()
	if err := l.online.End(floor, isotone.Range{First: ts, Count: 1}); err != nil {
		l.mu.Lock()
		if l.violation == "" {
			l.violation = err.Error()
		}
		l.mu.Unlock()
	}
	l.tally.answered(sent, now)
}

// stop ends the load. It waits for the calls under way.
func (l *load) stop() {
	close(l.quit)
	l.callers.Wait()
	l.closeClients()
}

func (l *load) closeClients() {
	for _, c := range l.clients {
		_ = c.Close() // it has no call under way
	}
}

// fill puts what was measured until now into r.
func (l *load) fill(r *Result, now time.Duration) {
	r.At = l.began.UTC().Truncate(time.Second)
	l.tally.fill(r, now)
	stats := l.online.Stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Checked, r.Violations, r.Unverified, r.Violation = stats.Checked, stats.Violations, stats.Unverified, l.violation
}
