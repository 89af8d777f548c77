package demoscale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// stickyKey is the key of the sticky strategy.
const stickyKey = "query:word"

// direct is no strategy: there is no proxy.
const direct balance.Strategy = ""

// answers computes the correct answers, by word.
func (s *settings) answers(ctx context.Context) ([]string, error) {
	answers := make([]string, s.words)
	for word := range answers {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		answers[word] = answerTo(wordAt(word), s.rounds)
	}
	return answers, nil
}

// tryAll runs all trials in turn.
func tryAll(ctx context.Context, s settings, progress io.Writer) ([]result, error) {
	answers, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	var results []result
	for i, t := range s.trials {
		left := time.Duration(len(s.trials)-i) * (s.warmup + s.duration)
		fmt.Fprintf(progress, "%d of %d: %s; %v to go\n", i+1, len(s.trials), t.Name, left)
		r, err := t.try(ctx, s, answers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// try starts workers with empty caches and a proxy, unless clients ask directly, and sends the load.
func (t trial) try(ctx context.Context, s settings, answers []string) (r result, err error) {
	var backends []proxy.Backend
	for i := range t.Workers {
		w, err := startWorker(s, i)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, w.stop()) }()
		backends = append(backends, proxy.Backend{URL: w.url})
	}
	l := load{settings: s, answers: answers, workers: t.Workers}
	if t.Strategy == direct {
		for _, b := range backends {
			l.urls = append(l.urls, b.URL)
		}
	} else {
		front, failed := startFront(t.Strategy, backends, s)
		if failed != nil {
			return r, failed
		}
		defer func() { err = errors.Join(err, front.stop()) }()
		l.urls = []string{front.url}
	}
	sum, err := l.run(ctx)
	if err != nil {
		return r, err
	}
	return sum.result(t, s.duration), nil
}

// front is the proxy of one trial.
type front struct {
	url    string
	server *proxy.Server
	served chan error
}

func startFront(strategy balance.Strategy, backends []proxy.Backend, s settings) (*front, error) {
	cfg := proxy.Config{
		Backends: backends, Strategy: strategy,
		RetriesMax: -1, // every request is one choice
		// A request may wait for as long as the load runs: waits are the result.
		Limits: proxy.Limits{AnswerTimeout: s.warmup + s.duration + stopTimeout},
	}
	var err error
	if strategy == balance.Sticky {
		cfg.StickyPercent = s.bound
		if cfg.StickyKey, err = proxy.ParseKey(stickyKey); err != nil {
			return nil, err
		}
	}
	server, err := proxy.New(cfg)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, server.Shutdown(context.Background()))
	}
	f := &front{url: "http://" + l.Addr().String(), server: server, served: make(chan error, 1)}
	go func() { f.served <- server.Serve(l) }()
	return f, nil
}

// stop ends the proxy and waits for it. It cuts off requests: the clients have disconnected.
func (f *front) stop() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.server.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return errors.Join(err, <-f.served)
	}
	return <-f.served
}
