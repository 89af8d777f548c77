package clockbench

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

const (
	// startTimeout bounds the wait of a process for the first valid reading.
	startTimeout = 10 * time.Second
	// errorPause is how long a goroutine waits after an error.
	errorPause = 10 * time.Millisecond
)

// ServeOptions configure a process.
type ServeOptions struct {
	Client client.Options
	// Timeout bounds each call.
	Timeout time.Duration
}

// server is one process of a run.
type server struct {
	options ServeOptions
	client  *client.Client
	clock   *client.Clock
	stopped context.Context // done when the run is to end
	lanes   int             // so far

	mu  sync.Mutex
	out *gob.Encoder
	err error // of out
}

// Serve is a process that [Run] has started: it obeys the orders that come from in and answers to out.
// It returns when in ends. When ctx is done it ends the phase under way early, and those that follow.
// Failures of its work are reported to out; the error is one of writing there.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o ServeOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &server{options: o, stopped: ctx, out: gob.NewEncoder(out)}
	orders := make(chan phase)
	go func() { // ends with in
		defer close(orders)
		defer stop()
		for d := gob.NewDecoder(in); ; {
			var next order
			if d.Decode(&next) != nil {
				return
			}
			if next.Stop {
				stop()
				continue
			}
			orders <- next.Phase
		}
	}()
	first := message{Ready: true}
	if err := s.start(); err != nil {
		first = message{Failed: err.Error()}
	}
	defer s.close()
	s.send(first)
	for p := range orders {
		if s.clock == nil {
			continue
		}
		done := s.run(p)
		s.send(message{Done: done})
	}
	return s.err
}

// start connects with the cluster.
func (s *server) start() (err error) {
	ctx, cancel := context.WithTimeout(s.stopped, startTimeout)
	defer cancel()
	if s.client, err = client.NewWith(ctx, s.options.Client); err == nil {
		s.clock, err = s.client.NewClock(ctx, client.ClockOptions{})
	}
	return err
}

func (s *server) close() {
	if s.clock != nil {
		_ = s.clock.Close()
	}
	if s.client != nil {
		_ = s.client.Close()
	}
}

// send sends a message. If that fails, the run is over.
func (s *server) send(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = s.out.Encode(m)
	}
}

// run runs one phase.
func (s *server) run(p phase) *outcome {
	w := &work{server: s, phase: p, end: time.Now().Add(p.Duration), measured: newMeasured()}
	var lanes sync.WaitGroup
	for range p.Lanes {
		s.lanes++
		lane := s.lanes
		if p.Batch == 0 {
			lanes.Go(func() { w.operate(lane) })
		} else {
			lanes.Go(func() { w.generate(lane) })
		}
	}
	lanes.Go(w.read)
	lanes.Wait()
	return w.measured.outcome()
}

// pause waits, unless the run is to end before.
func (s *server) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopped.Done():
	}
}

// codeOf returns the code of an error of a call.
func codeOf(err error) string {
	var known *isotone.Error
	switch {
	case errors.As(err, &known):
		return string(known.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return string(isotone.CodeDeadlineExceeded)
	}
	return "connection"
}
