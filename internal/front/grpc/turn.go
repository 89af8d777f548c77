package grpc

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/trace"
)

// turn has requests that have arrived together. They are submitted and answered together.
type turn struct {
	began   time.Time
	items   []item // in the order of the requests
	batches []*front.Batch
	open    atomic.Int64  // the batches without an answer
	done    chan struct{} // closed once there are none
	err     error         // why nobody waits any more; the backend may still own the batches
}

// item is one request of a turn.
type item struct {
	id        uint64
	err       error // it was not submitted
	batch, at int   // where its answer is
}

func newTurn() *turn { return &turn{began: time.Now(), done: make(chan struct{})} }

// refuse adds a request that is not submitted.
func (t *turn) refuse(id uint64, err error) { t.items = append(t.items, item{id: id, err: err}) }

// prepared is a request with what its client and the server's settings add.
type prepared struct {
	Ask
	raise bool
}

// prepare returns a as it is submitted.
func (c *call) prepare(a Ask) prepared {
	if a.Mode == isotone.ReadDefault {
		a.Mode = c.server.cfg.Mode
	}
	return prepared{a, a.Floor != (isotone.Timestamp{}) && c.session.May(access.Floors)}
}

// add adds a request. Those in a row that may be in one batch are.
func (t *turn) add(id uint64, p prepared) {
	last := len(t.batches) - 1
	if last < 0 || !p.fits(t.batches[last]) {
		t.batches = append(t.batches, &front.Batch{Mode: p.Mode, U64: p.U64, Floor: p.Floor, Raise: p.raise})
		last++
	}
	b := t.batches[last]
	t.items = append(t.items, item{id: id, batch: last, at: len(b.Counts)})
	b.Counts = append(b.Counts, p.Count)
}

// fits reports whether p may be in b.
func (p *prepared) fits(b *front.Batch) bool {
	return p.Mode == b.Mode && p.U64 == b.U64 && p.Floor == b.Floor && p.raise == b.Raise
}

// submit hands the batches over.
func (c *call) submit(t *turn) {
	t.open.Store(int64(len(t.batches)))
	if len(t.batches) == 0 {
		close(t.done)
		return
	}
	done := func(*front.Batch) {
		if t.open.Add(-1) == 0 {
			close(t.done)
		}
	}
	t.batches[0].Trace = trace.Of(c.ctx)
	for _, b := range t.batches {
		b.Ranges, b.Done = make([]isotone.Range, len(b.Counts)), done
		c.server.cfg.Backend.Submit(b)
	}
}

// await waits for the answers of t.
func (c *call) await(t *turn) {
	select {
	case <-t.done: // answered within Submit
	default:
		timer := time.NewTimer(c.server.cfg.RequestTimeout)
		defer timer.Stop()
		select {
		case <-t.done:
		case <-timer.C:
			t.err = isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer within %v", c.server.cfg.RequestTimeout)
			return
		case <-c.ctx.Done():
			t.err = isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time: %v", context.Cause(c.ctx))
			return
		}
	}
	for _, b := range t.batches {
		if b.Moved {
			c.session.Moved(b.Floor)
		}
	}
}

// result returns the answer of a request, after await.
func (t *turn) result(i *item) (isotone.Range, error) {
	switch {
	case i.err != nil:
		return isotone.Range{}, i.err
	case t.err != nil:
		return isotone.Range{}, t.err
	}
	b := t.batches[i.batch]
	if b.Err != nil {
		return isotone.Range{}, b.Err
	}
	if i.at >= len(b.Ranges) || b.Ranges[i.at].Count != b.Counts[i.at] {
		return isotone.Range{}, httpapi.WrongCount(b.Counts[i.at])
	}
	return b.Ranges[i.at], nil
}
