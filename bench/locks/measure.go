package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// noFence is a store that seals at once: what is measured is the service.
type noFence struct{}

func (noFence) Seal(context.Context, isotone.Timestamp) error { return nil }

// acquire measures a lock that nobody else wants.
func acquire(ctx context.Context, b *bench) (figure, error) {
	s, err := b.c.NewSession(ctx, client.SessionOptions{})
	if err != nil {
		return figure{}, err
	}
	m := s.Mutex("acquire")
	var times []time.Duration
	for i := range 3000 {
		begin := time.Now()
		if _, err := m.Lock(ctx); err != nil {
			return figure{}, err
		}
		if i >= 500 {
			times = append(times, time.Since(begin))
		}
		if err := m.Unlock(ctx); err != nil {
			return figure{}, err
		}
	}
	return timed("acquire a free lock", times), s.Close(ctx)
}

// handover measures from when the holder begins to release until the next one has the lock.
func handover(ctx context.Context, b *bench) (figure, error) {
	var mutexes [2]*client.Mutex
	for i := range mutexes {
		s, err := b.c.NewSession(ctx, client.SessionOptions{})
		if err != nil {
			return figure{}, err
		}
		defer s.Close(ctx)
		mutexes[i] = s.Mutex("handover")
	}
	if _, err := mutexes[0].Lock(ctx); err != nil {
		return figure{}, err
	}
	var times []time.Duration
	for i := range 2500 {
		holder, next := mutexes[i%2], mutexes[(i+1)%2]
		got := make(chan time.Time, 1)
		failed := make(chan error, 1)
		go func() {
			if _, err := next.Lock(ctx); err != nil {
				failed <- err
				return
			}
			got <- time.Now()
		}()
		time.Sleep(2 * time.Millisecond) // it queues
		begin := time.Now()
		if err := holder.Unlock(ctx); err != nil {
			return figure{}, err
		}
		select {
		case at := <-got:
			times = append(times, at.Sub(begin))
		case err := <-failed:
			return figure{}, err
		}
	}
	return timed("release, until the next holder has it", times[500:]), nil
}

// claims measures how many locks a second are acquired and released by many.
func claims(ctx context.Context, b *bench) (figure, error) {
	const holders, took = 256, 5 * time.Second
	var count atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, holders)
	before, _, err := b.usage(ctx)
	if err != nil {
		return figure{}, err
	}
	end := time.Now().Add(took)
	for i := range holders {
		s, err := b.c.NewSession(ctx, client.SessionOptions{})
		if err != nil {
			return figure{}, err
		}
		defer s.Close(ctx)
		all.Go(func() {
			m := s.Mutex(fmt.Sprint("claims/", i))
			for time.Now().Before(end) {
				if _, err := m.Lock(ctx); err != nil {
					failed <- err
					return
				}
				count.Add(1)
				if err := m.Unlock(ctx); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return figure{}, err
	default:
	}
	after, _, err := b.usage(ctx)
	return figure{
		Name: fmt.Sprintf("locks acquired and released by %d sessions", holders), Rate: float64(count.Load()) / took.Seconds(),
		Note: fmt.Sprintf("the leader uses %.0f µs of a core for each", float64((after-before).Microseconds())/float64(count.Load())),
	}, err
}

// killedHolder measures from when a holder is killed until the next one has the lock.
func killedHolder(ctx context.Context, b *bench) (figure, error) {
	s, err := b.c.NewSession(ctx, client.SessionOptions{})
	if err != nil {
		return figure{}, err
	}
	defer s.Close(ctx)
	var times []time.Duration
	for i := range 50 {
		m := s.Mutex(fmt.Sprint("killed/", i))
		cmd, _, err := b.startVictim(ctx, victimHolds, fmt.Sprint("killed/", i))
		if err != nil {
			return figure{}, err
		}
		got := make(chan error, 1)
		go func() { _, err := m.Lock(ctx); got <- err }()
		time.Sleep(20 * time.Millisecond) // it queues
		begin := time.Now()
		_ = cmd.Process.Kill()
		if err := <-got; err != nil {
			return figure{}, err
		}
		times = append(times, time.Since(begin))
		_ = cmd.Wait()
	}
	return timed("holder killed (linger 100 ms), until the next", times), nil
}

// killedWriter measures from when a writer with an open write is killed until the frontier has passed that.
func killedWriter(ctx context.Context, b *bench) (figure, error) {
	w, err := b.c.NewFrontier(ctx, "killed", client.FrontierOptions{Fence: noFence{}})
	if err != nil {
		return figure{}, err
	}
	defer w.Close(ctx)
	r := b.c.Frontier("killed")
	defer r.Close()
	var times []time.Duration
	for range 100 {
		cmd, text, err := b.startVictim(ctx, victimWrites, "killed")
		if err != nil {
			return figure{}, err
		}
		stamp, err := isotone.ParseTimestamp(text)
		if err != nil {
			return figure{}, err
		}
		if _, err := r.At(ctx); err != nil { // the connection is open
			return figure{}, err
		}
		begin := time.Now()
		_ = cmd.Process.Kill()
		if _, err := r.Wait(ctx, stamp); err != nil {
			return figure{}, err
		}
		times = append(times, time.Since(begin))
		_ = cmd.Wait()
	}
	return timed("writer killed, until the frontier goes on", times), nil
}

// lag measures how far a frontier is behind, from when a timestamp is there until the frontier has passed it, with many writers of 1 ms writes.
func lag(ctx context.Context, b *bench) (figure, error) {
	const writers = 10_000
	w, err := b.c.NewFrontier(ctx, "lag", client.FrontierOptions{Fence: noFence{}})
	if err != nil {
		return figure{}, err
	}
	defer w.Close(ctx)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var written atomic.Int64
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			for writing.Err() == nil {
				o, err := w.Begin(writing)
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond)
				o.Done()
				written.Add(1)
				time.Sleep(writePause)
			}
		})
	}
	time.Sleep(3 * time.Second)
	r := b.c.Frontier("lag")
	defer r.Close()
	var times []time.Duration
	begin, before := time.Now(), written.Load()
	for time.Since(begin) < 10*time.Second {
		ts, err := b.c.Timestamp(ctx)
		if err != nil {
			return figure{}, err
		}
		asked := time.Now()
		if _, err := r.Wait(ctx, ts); err != nil {
			return figure{}, err
		}
		times = append(times, time.Since(asked))
		time.Sleep(5 * time.Millisecond)
	}
	rate := float64(written.Load()-before) / time.Since(begin).Seconds()
	stop()
	all.Wait()
	f := timed(fmt.Sprintf("lag of a frontier, %d writers of 1 ms writes", writers), times)
	f.Rate, f.Note = rate, "writes"
	return f, nil
}

// writePause is between two writes of a writer: 10,000 of them make some 10,000 writes a second.
const writePause = time.Second

// sessions measures what idle sessions cost the leader.
func sessions(ctx context.Context, b *bench) (figure, error) {
	const count, took = 10_000, 15 * time.Second
	idle := func() (float64, uint64, error) {
		before, _, err := b.usage(ctx)
		if err != nil {
			return 0, 0, err
		}
		time.Sleep(took)
		after, memory, err := b.usage(ctx)
		return 100 * (after - before).Seconds() / took.Seconds(), memory, err
	}
	without, memory, err := idle()
	if err != nil {
		return figure{}, err
	}
	var all sync.WaitGroup
	failed := make(chan error, count)
	turns := make(chan struct{}, 64)
	list := make([]*client.Session, count)
	for i := range list {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			var err error
			if list[i], err = b.c.NewSession(ctx, client.SessionOptions{}); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return figure{}, err
	default:
	}
	with, used, err := idle()
	if err != nil {
		return figure{}, err
	}
	ended := 0
	for _, s := range list {
		if s.Err() != nil {
			ended++
		}
	}
	return figure{
		Name: fmt.Sprintf("%d idle sessions of 3 s", count),
		Note: fmt.Sprintf("the leader uses %.1f %% of a core (without: %.1f), and %d MiB more; %d sessions ended", with, without, (int64(used)-int64(memory))>>20, ended),
	}, nil
}
