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
func (c *Client) In(mode isotone.ReadMode) Reader { return Reader{client: c, mode: mode} }

// Reader is a [Client] with a read mode; see [Client.In].
type Reader struct {
	client *Client
	mode   isotone.ReadMode
	floor  isotone.Timestamp
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
	if r.floor != (isotone.Timestamp{}) || r.mode > isotone.ReadLease {
		got, err := r.Timestamps(ctx, 1)
		return got.First, err
	}
	return r.client.stamps.timestamp(ctx, kind(r.mode))
}

// Timestamp64 is [Client.Timestamp64] in the reader's mode.
func (r Reader) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	if r.floor != (isotone.Timestamp{}) || r.mode > isotone.ReadLease {
		got, err := r.Timestamps64(ctx, 1)
		return got.First, err
	}
	first, err := r.client.stamps.timestamp(ctx, kind64+kind(r.mode))
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
	if r.mode > isotone.ReadLease {
		return isotone.Timestamp{}, isotone.Errorf(isotone.CodeInvalidArgument, "unknown read mode %d", r.mode)
	}
	if count < 1 || count > countMax {
		return isotone.Timestamp{}, isotone.Errorf(isotone.CodeInvalidArgument, "%d timestamps in mode %s: want 1 to %d", count, r.mode, countMax)
	}
	p := r.client.stamps
	if r.floor != (isotone.Timestamp{}) {
		if r.client.isAhead(r.floor) {
			p = r.client.ahead
			if !r.client.aheadOn.Load() && r.client.aheadOn.CompareAndSwap(false, true) {
				r.client.wake()
			}
		}
		b, err := p.callAbove(ctx, k, count, r.floor)
		if err != nil {
			return isotone.Timestamp{}, err
		}
		return b.first, nil
	}
	b, at, err := p.call(ctx, k.place(), count)
	if err != nil {
		return isotone.Timestamp{}, err
	}
	return b.at(at), nil
}

// timestamp gets one timestamp of a kind.
func (p *pool) timestamp(ctx context.Context, k kind) (isotone.Timestamp, error) {
	if p.uncontended() {
		if ts, ok, err := p.client.direct.ask(ctx, k); ok || err != nil {
			return ts, err
		}
	}
	b, at, err := p.call(ctx, k.place(), 1)
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
