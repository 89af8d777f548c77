package client

import (
	"context"

	"github.com/isotone/isotone"
)

// Future is a timestamp that has been requested; see [Client.TimestampAsync]. It belongs to one goroutine,
// and must not be copied once Wait was called.
type Future struct {
	pool  *pool
	ctx   context.Context
	batch *batch
	at    uint64
	owns  bool // see pool.join
	err   error
}

// TimestampAsync requests a timestamp, and does not wait for it: so one goroutine can have many requests
// under way. The timestamp is larger than all that any client had received when this call began.
//
//	future := c.TimestampAsync(ctx)
//	row, err := readRow(ctx) // meanwhile
//	ts, err := future.Wait()
//
// It does not allocate. Requests that nobody waits for are answered all the same. At most
// Options.QueueMax requests and calls wait for an answer; beyond it Wait returns an error that matches
// isotone.ErrOverloaded.
func (c *Client) TimestampAsync(ctx context.Context) Future {
	return c.stamps.async(ctx, kind(c.opt.Mode))
}

// Timestamp64Async is [Client.TimestampAsync] for a timestamp of 64 bits.
func (c *Client) Timestamp64Async(ctx context.Context) Future64 {
	return Future64{c.stamps.async(ctx, kind64+kind(c.opt.Mode))}
}

func (p *pool) async(ctx context.Context, k kind) Future {
	f := Future{pool: p, ctx: ctx}
	f.batch, f.at, f.owns, f.err = p.join(ctx, k.place(), 1)
	return f
}

// Wait waits for the timestamp, or until the context is done with which it was requested. Later calls return
// the same.
func (f *Future) Wait() (isotone.Timestamp, error) {
	if f.pool != nil && f.err == nil {
		f.err = f.pool.wait(f.ctx, f.batch, f.owns)
	}
	switch {
	case f.err != nil:
		f.pool = nil
		return isotone.Timestamp{}, f.err
	case f.batch == nil:
		return isotone.Timestamp{}, isotone.Errorf(isotone.CodeInvalidArgument, "nothing was requested: the Future is its zero value")
	}
	f.pool = nil
	return f.batch.at(f.at), nil
}

// Future64 is a timestamp of 64 bits that has been requested; see [Future].
type Future64 struct{ future Future }

// Wait is [Future.Wait].
func (f *Future64) Wait() (isotone.Timestamp64, error) {
	ts, err := f.future.Wait()
	return isotone.Timestamp64From(ts), err
}
