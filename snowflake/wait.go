package snowflake

import (
	"context"
	"time"
)

// waitMax bounds each sleep of Next, so that it notices clock jumps, Extend and Stop soon.
const (
	waitMax   = waitMaxMS * time.Millisecond
	waitMaxMS = 10
)

// Next returns the next ID. It waits as long as [Generator.TryNext] fails with
// [ErrExhausted] or [ErrLeaseNotBegun], and returns other errors at once. It returns the
// error of ctx only if it must wait and ctx is done. Waiting calls are not served in order.
func (g *Generator) Next(ctx context.Context) (ID, error) {
	at, err := g.take(1)
	if err != nil {
		if at, err = g.wait(ctx, 1, err); err != nil {
			return 0, err
		}
	}
	return g.id(at), nil
}

// NextN is like [Generator.TryFill], but waits as [Generator.Next] does. A long dst may
// wait for ever while others request smaller batches and use up all IDs.
func (g *Generator) NextN(ctx context.Context, dst []ID) error {
	if len(dst) == 0 {
		return nil
	}
	at, err := g.take(uint64(len(dst)))
	if err != nil {
		if at, err = g.wait(ctx, uint64(len(dst)), err); err != nil {
			return err
		}
	}
	g.fill(dst, at)
	return nil
}

// wait takes n numbers as soon as there are that many; err is why there were not.
func (g *Generator) wait(ctx context.Context, n uint64, err error) (uint64, error) {
	timer := time.NewTimer(waitMax)
	defer timer.Stop()
	for {
		if err != ErrExhausted && err != ErrLeaseNotBegun {
			return 0, err
		}
		timer.Reset(g.delay(n))
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-timer.C:
		}
		var at uint64
		if at, err = g.take(n); err == nil {
			return at, nil
		}
	}
}

// delay returns how long it takes, at most waitMax, until n numbers are no longer too
// far ahead of the clock, if no other call takes any.
func (g *Generator) delay(n uint64) time.Duration {
	last := (g.next.Load() + n - 1) >> g.sequence
	missing := g.layout.Epoch + int64(last-g.ahead) - g.clock.exact()
	return time.Duration(min(max(missing, 1), waitMaxMS)) * time.Millisecond
}
