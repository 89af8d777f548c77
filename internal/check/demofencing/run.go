package demofencing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
)

// run is a run under way.
type run struct {
	*Options
	nodes []string // addresses
	redis string
	db    *redis
}

// Run starts the nodes, Redis and the holders, and returns what has happened; see [Result.Err]. If ctx is done, it returns the
// rounds until then. An error of Run means that the run itself failed. When it returns, all processes have ended and
// their files are removed.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "isotone-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &run{Options: &o}
	server, addr, err := startRedis(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop(server)) }()
	if r.db, err = openRedis(ctx, addr); err != nil {
		return nil, err
	}
	defer r.db.close()
	nodes, err := cluster.New(Nodes, dir, o.Command)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nodes.Kill()) }()
	if err := nodes.Start(); err != nil {
		return nil, err
	}
	if err := nodes.WaitReady(ctx); err != nil {
		return nil, err
	}
	r.nodes, r.redis = nodes.Addrs(), addr
	return r.run(ctx)
}

// run runs the rounds.
func (r *run) run(ctx context.Context) (*Result, error) {
	began := time.Now()
	result := &Result{Head: bench.NewHead(Schema, began, runtime.GOMAXPROCS(0)), Settings: Settings{Nodes: Nodes, Rounds: r.Rounds, TTLS: r.TTL.Seconds()}}
	result.Isotone, result.Verdict.OK, result.Result.Rounds = r.Version, true, []*Round{}
	for n := range r.Rounds {
		round, err := r.round(ctx, n+1)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if err != nil {
			result.Result.Interrupted = true
			break
		}
		result.add(round)
	}
	result.Result.ElapsedS = seconds(time.Since(began))
	return result, nil
}

// seconds rounds to a tenth of a millisecond.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 1e4 }

// stage is a round under way.
type stage struct {
	*run
	a, b  *holder
	began time.Time
	round *Round
}

// round runs two holders, and returns what they did.
func (r *run) round(ctx context.Context, number int) (round *Round, err error) {
	s := &stage{run: r, round: &Round{Number: number}}
	for _, h := range []struct {
		name string
		at   **holder
	}{{"A", &s.a}, {"B", &s.b}} {
		started, err := startHolder(h.name, slices.Concat(r.Command, r.HolderArgs))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, started.kill()) }()
		*h.at = started
	}
	s.began = time.Now()
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	if s.round.Fenced, err = r.db.get(keyFenced); err != nil {
		return nil, err
	}
	if s.round.Plain, err = r.db.get(keyPlain); err != nil {
		return nil, err
	}
	s.round.Done = true
	r.show(s.round)
	return s.round, errors.Join(s.b.end(), s.a.end())
}

// play has the holders do their parts. Between the steps lies a quarter of the TTL, or two of them, so that the story has a length.
func (s *stage) play(ctx context.Context) error {
	if err := s.ask(ctx, s.a, Locked, order{Do: "lock", Nodes: s.nodes, Redis: s.redis, TTL: s.TTL}); err != nil {
		return err
	}
	if err := s.ask(ctx, s.a, Wrote, order{Do: "write", Value: valueA}); err != nil {
		return err
	}
	if err := s.pause(ctx); err != nil {
		return err
	}
	if err := s.succeed(ctx); err != nil {
		return err
	}
	if err := s.wait(ctx, s.TTL/4); err != nil {
		return err
	}
	if err := s.a.signal(child.Cont); err != nil {
		return err
	}
	s.note(s.a, Event{What: Resumed})
	return s.ask(ctx, s.a, Wrote, order{Do: "write", Value: valueLate})
}

// pause pauses A in the middle of its work: it holds the lock, and has more to write.
func (s *stage) pause(ctx context.Context) error {
	if err := s.wait(ctx, s.TTL/4); err != nil {
		return err
	}
	switch r, err := s.a.ask(ctx, order{Do: "check"}); {
	case err != nil:
		return err
	case !r.Held:
		return fmt.Errorf("holder A has lost its lock before it was paused: this machine is too busy for a TTL of %v; want a longer --ttl", s.TTL)
	}
	if err := s.a.signal(child.Stop); err != nil {
		return err
	}
	s.note(s.a, Event{What: Paused, Held: true})
	return nil
}

// succeed has B wait until A's session has ended, and write.
func (s *stage) succeed(ctx context.Context) error {
	if err := s.wait(ctx, s.TTL/4); err != nil {
		return err
	}
	if err := s.b.tell(order{Do: "lock", Nodes: s.nodes, Redis: s.redis, TTL: s.TTL}); err != nil {
		return err
	}
	s.note(s.b, Event{What: Waited})
	r, err := s.b.hear(ctx, holderTimeout+2*s.TTL)
	if err != nil {
		return err
	}
	s.note(s.b, Event{What: Locked, Token: r.Token, Held: r.Held})
	return s.ask(ctx, s.b, Wrote, order{Do: "write", Value: valueB})
}

// ask gives an order to a holder, and notes what it has done.
func (s *stage) ask(ctx context.Context, h *holder, what What, o order) error {
	r, err := h.ask(ctx, o)
	if err == nil {
		s.note(h, Event{What: what, Token: r.Token, Value: o.Value, Fence: r.Fence, Held: r.Held})
	}
	return err
}

// note notes an event of this moment.
func (s *stage) note(h *holder, e Event) {
	e.AtS, e.Holder = seconds(time.Since(s.began)), h.name
	s.round.Events = append(s.round.Events, e)
	s.show(s.round)
}

func (r *run) show(round *Round) {
	if r.Show != nil {
		r.Show(round)
	}
}

func (s *stage) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
