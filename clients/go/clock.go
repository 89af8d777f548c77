package main

import (
	"context"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/conformance"
)

// tell carries out a command for a clock.
func (d *driver) tell(ctx context.Context, c *conformance.Command) (r conformance.Result, err error) {
	k := find(d, d.clocks, c.Clock)
	ts := isotone.Timestamp{}
	if c.Timestamp != "" {
		if ts, err = isotone.ParseTimestamp(c.Timestamp); err != nil {
			return r, err
		}
	}
	switch c.Do {
	case "clock":
		return r, d.clock(ctx, c)
	case "interval":
		return interval(k)
	case "stamp":
		list := make([]isotone.Timestamp, *c.Count)
		if err = stamp(ctx, k, list); err == nil {
			r.Timestamps = texts(list)
		}
	case "past":
		r.Past = k.After(ts)
	case "wait":
		err = k.Wait(ctx, ts)
	case "stop":
		if k != nil {
			err = k.Close()
		}
	}
	return r, err
}

// clock makes a clock.
func (d *driver) clock(ctx context.Context, c *conformance.Command) error {
	k, err := find(d, d.clients, c.Client).NewClock(ctx, client.ClockOptions{})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clocks[c.Clock] = k
	return nil
}

// interval reads a clock, and the term of what it has read.
func interval(k *client.Clock) (r conformance.Result, err error) {
	for {
		term := k.Stats().Term
		now, err := k.Now()
		if err != nil {
			return r, err
		}
		if term == k.Stats().Term {
			r.Earliest, r.Latest, r.Term = decimal(now.Earliest), decimal(now.Latest), decimal(term)
			return r, nil
		}
	}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// stamp makes timestamps: a single one by the method for it.
func stamp(ctx context.Context, k *client.Clock, list []isotone.Timestamp) (err error) {
	if len(list) == 1 {
		list[0], err = k.Timestamp(ctx)
		return err
	}
	return k.Timestamps(ctx, list)
}
