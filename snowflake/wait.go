package snowflake

import (
	"context"
	"time"
)

// waitMax bounds one sleep of Next, so that it soon notices clock jumps, Extend and Stop.
const (
	waitMax   = waitMaxMS * time.Millisecond
	waitMaxMS = 10
)

// Next returns the next id. It waits while [Generator.TryNext] says [ErrExhausted] or
// [ErrLeaseNotBegun]; other errors it returns at once, and that of ctx when ctx is
// done while it waits. An id that can be had at once is returned even then. Who waits
// longest has no precedence.
func (g *Generator) Next(ctx context.Context) (ID, error) {
	at, err := g.take(1)
	if err != nil {
		if at, err = g.wait(ctx, 1, err); err != nil {
			return 0, err
		}
	}
	return g.id(at), nil
}

// NextN is [Generator.TryFill] that waits as [Generator.Next] does. While others ask
// for fewer ids at a time, and for all that there are, a long dst may wait for ever.
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

// wait takes n numbers as soon as there are as many; err is why there were none.
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
// far ahead of the clock, if nobody else takes any.
func (g *Generator) delay(n uint64) time.Duration {
	last := (g.next.Load() + n - 1) >> g.sequence
	missing := g.layout.Epoch + int64(last-g.ahead) - g.clock.exact()
	return time.Duration(min(max(missing, 1), waitMaxMS)) * time.Millisecond
}
