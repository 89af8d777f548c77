package node

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// deskMax bounds the requests for worker ids that are not answered. A client asks a few
// times a minute.
const deskMax = 1024

var errDeskFull = isotone.Errorf(isotone.CodeOverloaded, "too many requests for worker ids wait")

// desk leases worker ids to clients. It belongs to the home loop's goroutine.
type desk struct {
	open    map[uint64]*front.WorkerRequest
	tokens  uint64
	arrived []replica.LeaseRequest // since the last turn
}

// take takes a request into the next turn.
func (d *desk) take(r *front.WorkerRequest) {
	if len(d.open) >= deskMax {
		r.Err = errDeskFull
		r.Done(r)
		return
	}
	d.tokens++
	q := replica.LeaseRequest{Token: d.tokens, Session: r.Session, Fixed: r.Fixed, FromMillis: r.From, LengthMillis: r.Length}
	if r.Release {
		q.Release = &oracle.Used{Worker: uint16(r.Fixed), Start: r.From, Next: r.Next}
	}
	d.open[q.Token] = r
	d.arrived = append(d.arrived, q)
}

func (d *desk) answer(a *replica.LeaseAnswer) {
	r := d.open[a.Token]
	delete(d.open, a.Token)
	r.Worker, r.Layout = int(a.Worker), snowflake.Layout(a.Space)
	r.Lease = snowflake.Lease{Start: int64(a.Start), End: int64(a.End)}
	if r.Err = nil; a.Err != nil {
		r.Err = a.Err
	}
	r.Done(r)
}

// close answers what waits.
func (d *desk) close(err error) {
	for _, r := range d.open {
		r.Err = err
		r.Done(r)
	}
	clear(d.open)
}

// LeaseWorker takes a request into the turn that follows; see front.Lessor.
func (h home) LeaseWorker(r *front.WorkerRequest) { h.desk.take(r) }

// LeaseWorker has the home loop take the request, and answers in this one; see
// front.Lessor.
func (b *branch) LeaseWorker(r *front.WorkerRequest) {
	done := r.Done
	r.Done = func(r *front.WorkerRequest) {
		b.post(func() {
			r.Done = done
			done(r)
		})
	}
	if !b.node.mail.post(func(in *mail) { in.calls = append(in.calls, func() { b.node.desk.take(r) }) }) {
		r.Done, r.Err = done, errStopped
		done(r)
	}
}
