package client

import (
	"context"

	"github.com/isotone/isotone"
)

// Future is a timestamp that has been requested; see [Client.TimestampAsync] and [Reader.TimestampAsync]. It belongs to one goroutine,
// and must not be copied once Wait was called.
type Future struct {
	order *order
	ctx   context.Context
	batch *batch
	at    uint64
	owns  bool // see order.join
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
	return c.In(c.opt.Mode).TimestampAsync(ctx)
}

// Timestamp64Async is [Client.TimestampAsync] for a timestamp of 64 bits.
func (c *Client) Timestamp64Async(ctx context.Context) Future64 {
	return c.In(c.opt.Mode).Timestamp64Async(ctx)
}

// TimestampAsync is [Client.TimestampAsync] in the reader's mode, and above its floor.
func (r Reader) TimestampAsync(ctx context.Context) Future { return r.async(ctx, kind(r.mode)) }

// Timestamp64Async is [Reader.TimestampAsync] for a timestamp of 64 bits.
func (r Reader) Timestamp64Async(ctx context.Context) Future64 {
	return Future64{r.async(ctx, kind64+kind(r.mode))}
}

func (r Reader) async(ctx context.Context, k kind) Future {
	if err := r.check(1, 1); err != nil {
		return Future{err: err}
	}
	f := Future{order: r.order, ctx: ctx}
	if r.floor != (isotone.Timestamp{}) {
		f.order = r.aloneIn()
		f.batch, f.err = f.order.joinAlone(ctx, k, 1, r.floor)
		return f
	}
	f.batch, f.at, f.owns, f.err = f.order.join(ctx, k.place(), 1)
	return f
}

// Wait waits for the timestamp, or until the context is done with which it was requested. Later calls return
// the same.
func (f *Future) Wait() (isotone.Timestamp, error) {
	if f.order != nil && f.err == nil {
		f.err = f.order.wait(f.ctx, f.batch, f.owns)
	}
	switch {
	case f.err != nil:
		f.order = nil
		return isotone.Timestamp{}, f.err
	case f.batch == nil:
		return isotone.Timestamp{}, isotone.Errorf(isotone.CodeInvalidArgument, "nothing was requested: the Future is its zero value")
	}
	f.order = nil
	return f.batch.at(f.at), nil
}

// Future64 is a timestamp of 64 bits that has been requested; see [Future].
type Future64 struct{ future Future }

// Wait is [Future.Wait].
func (f *Future64) Wait() (isotone.Timestamp64, error) {
	ts, err := f.future.Wait()
	return isotone.Timestamp64From(ts), err
}
