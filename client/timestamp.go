package client

import (
	"context"

	"github.com/isotone/isotone"
)

// Timestamp returns a timestamp larger than all that any client had received when the call
// began. See [Client] for when it returns.
func (c *Client) Timestamp(ctx context.Context) (isotone.Timestamp, error) {
	return c.stamps.timestamp(ctx, kind(c.opt.Mode))
}

// Timestamps returns count consecutive timestamps, 1 to isotone.RangeCountMax.
func (c *Client) Timestamps(ctx context.Context, count uint64) (isotone.Range, error) {
	return c.In(c.opt.Mode).Timestamps(ctx, count)
}

// Timestamp64 is Timestamp in the 64-bit form. Timestamps of both forms have one order; see
// [isotone.Timestamp64]. Nodes of versions that do not know the form refuse the call.
func (c *Client) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	return c.In(c.opt.Mode).Timestamp64(ctx)
}

// Timestamps64 returns count consecutive timestamps of 64 bits, 1 to isotone.Range64CountMax.
func (c *Client) Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error) {
	return c.In(c.opt.Mode).Timestamps64(ctx, count)
}

// In returns a reader of timestamps in a read mode. It does not allocate.
//
//	ts, err := c.In(isotone.ReadLease).Timestamp(ctx)
func (c *Client) In(mode isotone.ReadMode) Reader {
	return Reader{client: c, order: &c.stamps.order, mode: mode}
}

// Reader is a [Client] with a read mode, see [Client.In], or one of its timelines, see [Client.Timeline].
type Reader struct {
	client *Client
	order  *order
	mode   isotone.ReadMode
	floor  isotone.Timestamp
	fault  *isotone.Error // of all calls
}

// In returns a reader in another read mode.
func (r Reader) In(mode isotone.ReadMode) Reader {
	r.mode = mode
	return r
}

// Above returns a reader of timestamps larger than floor, for a floor that the client has not
// received itself but, for instance, on behalf of another one. Each call is a request of its
// own, and fails with an error that matches isotone.ErrRegressed if the cluster would undercut
// the floor and may not raise itself to it. At most 1024 such calls wait; beyond that the error
// is isotone.ErrOverloaded. The zero timestamp removes the floor.
func (r Reader) Above(floor isotone.Timestamp) Reader {
	r.floor = floor
	return r
}

// Timestamp is [Client.Timestamp] in the reader's mode.
func (r Reader) Timestamp(ctx context.Context) (isotone.Timestamp, error) {
	if r.floor != (isotone.Timestamp{}) || r.mode > isotone.ReadLease || r.fault != nil {
		got, err := r.Timestamps(ctx, 1)
		return got.First, err
	}
	return r.order.timestamp(ctx, kind(r.mode))
}

// Timestamp64 is [Client.Timestamp64] in the reader's mode.
func (r Reader) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	if r.floor != (isotone.Timestamp{}) || r.mode > isotone.ReadLease || r.fault != nil {
		got, err := r.Timestamps64(ctx, 1)
		return got.First, err
	}
	first, err := r.order.timestamp(ctx, kind64+kind(r.mode))
	return isotone.Timestamp64From(first), err
}

// Timestamps is [Client.Timestamps] in the reader's mode.
func (r Reader) Timestamps(ctx context.Context, count uint64) (isotone.Range, error) {
	first, err := r.timestamps(ctx, kind(r.mode), count, isotone.RangeCountMax)
	if err != nil {
		return isotone.Range{}, err
	}
	return isotone.Range{First: first, Count: count}, nil
}

// Timestamps64 is [Client.Timestamps64] in the reader's mode.
func (r Reader) Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error) {
	first, err := r.timestamps(ctx, kind64+kind(r.mode), count, isotone.Range64CountMax)
	if err != nil {
		return isotone.Range64{}, err
	}
	return isotone.Range64{First: isotone.Timestamp64From(first), Count: count}, nil
}

// timestamps gets count timestamps of a kind, and returns the place of the first.
func (r Reader) timestamps(ctx context.Context, k kind, count, countMax uint64) (isotone.Timestamp, error) {
	if err := r.check(count, countMax); err != nil {
		return isotone.Timestamp{}, err
	}
	if r.floor != (isotone.Timestamp{}) {
		o := r.aloneIn()
		b, err := o.joinAlone(ctx, k, count, r.floor)
		if err == nil {
			err = o.wait(ctx, b, false)
		}
		if err != nil {
			return isotone.Timestamp{}, err
		}
		return b.first, nil
	}
	b, at, err := r.order.call(ctx, k.place(), count)
	if err != nil {
		return isotone.Timestamp{}, err
	}
	return b.at(at), nil
}

// check returns the error of a call for count timestamps, or nil.
func (r Reader) check(count, countMax uint64) error {
	switch {
	case r.fault != nil:
		return r.fault
	case r.mode > isotone.ReadLease:
		return isotone.Errorf(isotone.CodeInvalidArgument, "unknown read mode %d", r.mode)
	case count < 1 || count > countMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "%d timestamps in mode %s: want 1 to %d", count, r.mode, countMax)
	}
	return nil
}

// aloneIn returns the order for calls with the reader's floor. The owner of a timeline does not hold them.
func (r Reader) aloneIn() *order {
	c := r.client
	if r.order.timeline != nil || !c.isAhead(r.floor) {
		return r.order
	}
	if !c.aheadOn.Load() && c.aheadOn.CompareAndSwap(false, true) {
		c.wake()
	}
	return &c.ahead.order
}

// timestamp gets one timestamp of a kind.
func (o *order) timestamp(ctx context.Context, k kind) (isotone.Timestamp, error) {
	if o.pool != nil && o.pool.uncontended() {
		if ts, ok, err := o.client.direct.ask(ctx, k); ok || err != nil {
			return ts, err
		}
	}
	b, at, err := o.call(ctx, k.place(), 1)
	if err != nil {
		return isotone.Timestamp{}, err
	}
	return b.at(at), nil
}

// place returns the place of the kind of timestamps among the queues of a pool.
func (k kind) place() int {
	if k.is64() {
		return int(k - kind64 + kindID)
	}
	return int(k)
}

// at returns the place of the i-th timestamp of an answer in the order of all.
func (b *batch) at(i uint64) isotone.Timestamp {
	if b.kind.is64() {
		return (isotone.Timestamp64From(b.first) + isotone.Timestamp64(i)).Timestamp()
	}
	return isotone.Timestamp{Time: b.first.Time, Index: b.first.Index + i}
}
