//go:build linux

package trial

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/snowflake"
)

// ClientIDs runs goroutines that request IDs from the members through the client of a
// ClientLoad, and others that make IDs of workers that they lease.
type ClientIDs struct {
	stop context.CancelFunc
	work sync.WaitGroup

	generators []*client.Generator

	mu     sync.Mutex
	seen   map[snowflake.ID]bool
	faults []error
}

// StartClientIDs starts the goroutines.
func StartClientIDs(t *testing.T, l *ClientLoad) *ClientIDs {
	t.Helper()
	running, stop := context.WithCancel(context.Background())
	d := &ClientIDs{stop: stop, seen: map[snowflake.ID]bool{}}
	t.Cleanup(d.End)
	batch, pause := 20, 10*time.Millisecond
	if inStorm() {
		batch, pause = 100, 5*time.Millisecond
	}
	for range 4 {
		d.run(running, pause, func(ctx context.Context) ([]snowflake.ID, error) {
			return l.Client.Snowflakes(ctx, batch)
		})
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(running, chaos.ReadyTimeout)
		g, err := l.Client.NewGenerator(ctx, client.GeneratorOptions{Lease: 600 * time.Millisecond})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		d.generators = append(d.generators, g)
		d.run(running, time.Millisecond, func(ctx context.Context) ([]snowflake.ID, error) {
			id, err := g.Next(ctx)
			return []snowflake.ID{id}, err
		})
	}
	return d
}

// run requests IDs until the load ends, with a pause after each answer.
func (d *ClientIDs) run(running context.Context, pause time.Duration, ask func(context.Context) ([]snowflake.ID, error)) {
	d.work.Go(func() {
		for running.Err() == nil {
			ctx, cancel := context.WithTimeout(context.Background(), CallDeadline())
			ids, err := ask(ctx)
			cancel()
			d.note(ids, err)
			time.Sleep(pause)
		}
	})
}

func (d *ClientIDs) note(ids []snowflake.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.fault(fmt.Errorf("at %s: %w", time.Now().UTC().Format(time.RFC3339Nano), err))
		return
	}
	for _, id := range ids {
		if d.seen[id] {
			d.fault(fmt.Errorf("I9: %v twice", id))
		}
		d.seen[id] = true
	}
}

func (d *ClientIDs) fault(err error) {
	if len(d.faults) < 10 {
		d.faults = append(d.faults, err)
	}
}

// End stops the load. It may be called more than once.
func (d *ClientIDs) End() {
	d.stop()
	d.work.Wait()
}

// Count returns how many IDs the load has, once it has ended.
func (d *ClientIDs) Count() int { return len(d.seen) }

// Verify ends the load, before that of its client. No call may have failed, and no ID
// came twice.
func (d *ClientIDs) Verify(t *testing.T) {
	t.Helper()
	d.End()
	workers := map[int]bool{}
	for _, g := range d.generators {
		workers[g.Worker()] = true
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d IDs", len(d.seen))
	for _, err := range d.faults {
		t.Error(err)
	}
	if len(workers) != 2 || len(d.seen) < 1000 {
		t.Errorf("workers %v, %d IDs", workers, len(d.seen))
	}
}
