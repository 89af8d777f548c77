package demoscale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// victim is the worker that dies.
const victim = 0

// crew are the workers of one trial, and where they are.
type crew struct {
	settings modelSettings
	service  string // of names
	mu       sync.Mutex
	members  []*member
}

// member is one process: a worker, its TCP server, and its registration.
type member struct {
	place  place
	worker *worker
	lines  *lineServer
	cancel context.CancelFunc
	named  chan struct{} // closed when the registration has ended
}

// join starts a worker at addr, with an empty cache.
func (c *crew) join(i int, addr string) (*member, error) {
	w, err := startWorker(c.settings.settings, i)
	if err != nil {
		return nil, err
	}
	lines, err := serveLines(addr, w.answerLine)
	if err != nil {
		return nil, errors.Join(err, w.stop())
	}
	m := &member{place: place{fmt.Sprintf("worker-%d", i+1), lines.addr}, worker: w, lines: lines, named: make(chan struct{})}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.named)
		keepNamed(ctx, c.service, m.place, c.settings.lease)
	}()
	return m, nil
}

// kill ends a member without a word to anybody.
func (m *member) kill() error {
	m.cancel()
	<-m.named
	m.lines.kill()
	return m.worker.stop()
}

// kill kills the victim, and revive starts it again at the same address.
func (c *crew) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[victim].kill()
}

func (c *crew) revive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.join(victim, c.members[victim].place.addr)
	if err == nil {
		c.members[victim] = m
	}
	return err
}

func (c *crew) places() (list []place) {
	for _, m := range c.members {
		list = append(list, m.place)
	}
	return list
}

// tryModel runs one trial.
func tryModel(ctx context.Context, name string, s modelSettings, answers []string) (r modelResult, err error) {
	names, err := startNameService(s.lease)
	if err != nil {
		return r, err
	}
	defer names.kill()
	team := &crew{settings: s, service: names.addr}
	defer func() {
		for _, m := range team.members {
			err = errors.Join(err, m.kill())
		}
	}()
	for i := range s.workers {
		m, err := team.join(i, "127.0.0.1:0")
		if err != nil {
			return r, err
		}
		team.members = append(team.members, m)
	}
	if err := awaitNames(ctx, names.addr, s.workers); err != nil {
		return r, err
	}
	choosers, stop, err := choosersOf(name, s, names.addr, team.places())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	names.count()
	line := &timeline{began: time.Now(), warm: s.warmup}
	script, cancel := context.WithCancel(ctx)
	happened := make(chan error, 1)
	go func() { happened <- play(script, s, line, team) }()
	clients, err := runModelLoad(ctx, s, answers, line, choosers)
	cancel()
	if err = errors.Join(err, <-happened); err != nil {
		return r, err
	}
	r = sumUp(name, s, line, clients)
	r.Lookups = names.count()
	return r, nil
}

// play kills the victim and revives it, each in its time.
func play(ctx context.Context, s modelSettings, line *timeline, team *crew) error {
	for _, act := range []struct {
		at   time.Duration
		do   func() error
		note func(time.Duration)
	}{
		{s.warmup + s.duration, team.kill, func(at time.Duration) { line.killed.Store(int64(at)) }},
		{s.warmup + 2*s.duration, team.revive, func(at time.Duration) { line.returned.Store(int64(at)) }},
	} {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(act.at - line.now()):
		}
		act.note(line.now())
		if err := act.do(); err != nil {
			return err
		}
	}
	return nil
}

// awaitNames waits until the name service knows all workers.
func awaitNames(ctx context.Context, service string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for {
		list, err := lookUp(ctx, service)
		if err == nil && len(list) == n {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the name service knows %d of %d workers: %w", len(list), n, errors.Join(err, ctx.Err()))
		}
		time.Sleep(time.Millisecond)
	}
}

// choosersOf makes the choosers of all clients, and what ends what they need.
func choosersOf(name string, s modelSettings, service string, places []place) (list []chooser, stop func() error, err error) {
	stop = func() error { return nil }
	addr := ""
	if name == modelProxy {
		if addr, stop, err = startModelProxy(s, places); err != nil {
			return nil, nil, err
		}
	}
	for i := range s.clients {
		switch name {
		case modelProxy:
			list = append(list, viaProxy{addr})
		case modelNames:
			list = append(list, &byName{service: service, refresh: s.refresh, source: rand.New(rand.NewPCG(s.seed, uint64(i)<<1|1))})
		case modelHash:
			h, err := newByHash(slices.Clone(places), s.probe)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, h)
		}
	}
	return list, stop, nil
}

// startModelProxy starts what "isotone proxy --tcp" runs.
func startModelProxy(s modelSettings, places []place) (addr string, stop func() error, err error) {
	cfg := proxy.TCPConfig{
		Strategy: balance.LeastBusy, Health: proxy.Health{Connect: true, Interval: s.probe},
		Ejection: balance.EjectorConfig{Base: s.probe, Max: 2 * s.probe},
		Limits:   proxy.TCPLimits{IdleTimeout: time.Minute + s.length()}, // waits are the result
	}
	for _, p := range places {
		cfg.Backends = append(cfg.Backends, proxy.Backend{URL: p.addr})
	}
	server, err := proxy.NewTCP(cfg)
	if err != nil {
		return "", nil, err
	}
	return serve(server)
}
