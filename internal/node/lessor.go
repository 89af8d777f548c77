package node

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// leaseRequestsMax bounds the requests for worker leases that are not answered. A client
// asks a few times a minute.
const leaseRequestsMax = 1024

var errLeaseRequests = isotone.Errorf(isotone.CodeOverloaded, "too many requests for worker ids wait")

// lessor leases worker ids to clients. It belongs to the core loop's goroutine.
type lessor struct {
	open   map[uint64]*front.WorkerRequest // by token
	tokens uint64
}

// take adds a request to the input of the next turn.
func (l *lessor) take(r *front.WorkerRequest, in *replica.Input) {
	if len(l.open) >= leaseRequestsMax {
		r.Err = errLeaseRequests
		r.Done(r)
		return
	}
	l.tokens++
	q := replica.LeaseRequest{Token: l.tokens, Session: r.Session, Fixed: r.Fixed, FromMillis: r.From, LengthMillis: r.Length}
	if r.Revoke {
		q.Revoke = &oracle.Revocation{Worker: uint16(r.Fixed), Start: r.From}
	}
	if r.Release {
		q.Release = &oracle.Used{Worker: uint16(r.Fixed), Start: r.From, Next: r.Next}
	}
	l.open[q.Token] = r
	in.LeaseRequests = append(in.LeaseRequests, q)
}

func (l *lessor) answer(a *replica.LeaseAnswer) {
	r := l.open[a.Token]
	delete(l.open, a.Token)
	r.Worker, r.Layout = int(a.Worker), snowflake.Layout(a.Space)
	r.Lease = snowflake.Lease{Start: int64(a.Start), End: int64(a.End)}
	if r.Err = nil; a.Err != nil {
		r.Err = a.Err
	}
	r.Done(r)
}

// close answers all requests with err.
func (l *lessor) close(err error) {
	for _, r := range l.open {
		r.Err = err
		r.Done(r)
	}
	clear(l.open)
}
