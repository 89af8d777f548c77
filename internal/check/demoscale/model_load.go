package demoscale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Phases of a trial: all workers are there, one is dead, it is back.
const (
	healthy = iota
	dead
	back
	phases
)

// errorPause is the pause of a client after a request that has failed.
const errorPause = 5 * time.Millisecond

// timeline has the moments of a trial, since it began. What has not happened is 0.
type timeline struct {
	began            time.Time
	warm             time.Duration
	killed, returned atomic.Int64
}

func (t *timeline) now() time.Duration { return time.Since(t.began) }

// phase returns the phase at a time, or -1 during the warm-up.
func (t *timeline) phase(at time.Duration) int {
	switch killed, returned := time.Duration(t.killed.Load()), time.Duration(t.returned.Load()); {
	case returned > 0 && at >= returned:
		return back
	case killed > 0 && at >= killed:
		return dead
	case at >= t.warm:
		return healthy
	}
	return -1
}

// modelClient sends one request after the other. An attempt that fails is an error: it is not
// retried.
type modelClient struct {
	settings modelSettings
	chooser  chooser
	answers  []string
	timeline *timeline
	source   *rand.Rand
	conns    map[string]*lineConn

	tallies   [phases]*tally
	errors    [phases]int
	lastError time.Duration // while the worker was dead
	usedAgain time.Duration // when the worker that was dead answered first; 0: never
}

// run sends requests until ctx ends. An error means a wrong answer.
func (c *modelClient) run(ctx context.Context) error {
	defer func() {
		for _, conn := range c.conns {
			conn.close()
		}
	}()
	for ctx.Err() == nil {
		word := c.source.IntN(c.settings.words)
		began := c.timeline.now()
		worker, hit, err := c.ask(ctx, word)
		at := c.timeline.now()
		phase := c.timeline.phase(at)
		var wrong wrongAnswer
		switch {
		case errors.As(err, &wrong):
			return err
		case ctx.Err() != nil || at >= c.settings.length(): // a dial ends by itself just before ctx does
			return nil
		case err != nil:
			if phase >= 0 {
				c.errors[phase]++
			}
			if phase == dead {
				c.lastError = at
			}
			time.Sleep(errorPause)
		case phase >= 0:
			c.tallies[phase].answered(word, worker, hit, at-began)
			if phase == back && worker == victim && c.usedAgain == 0 {
				c.usedAgain = at
			}
		}
	}
	return nil
}

// wrongAnswer ends the whole run.
type wrongAnswer struct{ error }

// ask sends one request and checks the answer.
func (c *modelClient) ask(ctx context.Context, word int) (worker int, hit bool, err error) {
	addr, keep, err := c.chooser.choose(ctx, wordAt(word))
	if err != nil {
		return 0, false, err
	}
	conn := c.conns[addr]
	if conn == nil {
		if conn, err = dialLine(ctx, addr); err != nil {
			c.chooser.failed(addr)
			return 0, false, err
		}
	}
	delete(c.conns, addr)
	text, err := conn.ask(ctx, wordAt(word))
	if err != nil {
		conn.close()
		c.chooser.failed(addr)
		return 0, false, err
	}
	if keep {
		c.conns[addr] = conn
	} else {
		conn.close()
	}
	fields := strings.SplitN(text, " ", 3)
	if len(fields) != 3 || fields[2] != c.answers[word] {
		return 0, false, wrongAnswer{fmt.Errorf("%s is answered with %.100q", wordAt(word), text)}
	}
	worker, err = strconv.Atoi(fields[0])
	if err != nil || worker < 0 || worker >= c.settings.workers {
		return 0, false, wrongAnswer{errors.New("an answer does not name its worker")}
	}
	return worker, fields[1] == "hit", nil
}

// runModelLoad runs all clients until the end, or until an answer is wrong.
func runModelLoad(ctx context.Context, s modelSettings, answers []string, line *timeline, choosers []chooser) ([]*modelClient, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	end, stop := context.WithDeadline(ctx, line.began.Add(s.length()))
	defer stop()
	var list []*modelClient
	var running sync.WaitGroup
	for i, chooser := range choosers {
		c := &modelClient{
			settings: s, chooser: chooser, answers: answers, timeline: line, conns: map[string]*lineConn{},
			source: rand.New(rand.NewPCG(s.seed, uint64(i)<<1)),
		}
		for phase := range c.tallies {
			c.tallies[phase] = newTally(s.words, s.workers)
		}
		list = append(list, c)
		running.Go(func() {
			if err := c.run(end); err != nil {
				fail(err)
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return list, nil
}
