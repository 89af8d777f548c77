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

// tryAll runs trials of some length in turn.
func tryAll[T, R any](ctx context.Context, s *settings, length time.Duration, trials []T, progress io.Writer, try func(trial T, answers []string) (R, error)) ([]R, error) {
	answers, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	var results []R
	for i, t := range trials {
		fmt.Fprintf(progress, "%d of %d: %v; %v to go\n", i+1, len(trials), t, time.Duration(len(trials)-i)*length)
		r, err := try(t, answers)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// compare runs all trials.
func (s *settings) compare(ctx context.Context, progress io.Writer) (shown, error) {
	results, err := tryAll(ctx, s, s.warmup+s.duration, s.trials, progress, func(t trial, answers []string) (result, error) {
		return t.try(ctx, *s, answers)
	})
	if err != nil {
		return shown{}, err
	}
	return shown{results, table(results) + "\n" + plot(results), picture(*s, results)}, nil
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
		addr, stop, failed := startFront(t.Strategy, backends, s)
		if failed != nil {
			return r, failed
		}
		defer func() { err = errors.Join(err, stop()) }()
		l.urls = []string{"http://" + addr}
	}
	sum, err := l.run(ctx)
	if err != nil {
		return r, err
	}
	return sum.result(t, s.duration), nil
}

// startFront starts the proxy of one trial.
func startFront(strategy balance.Strategy, backends []proxy.Backend, s settings) (addr string, stop func() error, err error) {
	cfg := proxy.Config{
		Backends: backends, Strategy: strategy,
		RetriesMax: -1, // every request is one choice
		// A request may wait for as long as the load runs: waits are the result.
		Limits: proxy.Limits{AnswerTimeout: s.warmup + s.duration + stopTimeout},
	}
	if strategy == balance.Sticky {
		cfg.StickyPercent = s.bound
		if cfg.StickyKey, err = proxy.ParseKey(stickyKey); err != nil {
			return "", nil, err
		}
	}
	server, err := proxy.New(cfg)
	if err != nil {
		return "", nil, err
	}
	return serve(server)
}

// serve has a proxy serve until stop is called, which waits for its end. It cuts off requests: the clients have disconnected.
func serve(server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}) (addr string, stop func() error, err error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, server.Shutdown(ended))
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return l.Addr().String(), func() error {
		err := server.Shutdown(ended)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, <-served)
	}, nil
}
