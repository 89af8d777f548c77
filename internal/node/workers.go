package node

import (
	"context"
	"fmt"
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// The worker leases of the cluster, for operators.

// takeWorkerRequest answers a list at once, and leaves everything else to the lessor.
func (c *core) takeWorkerRequest(r *front.WorkerRequest) {
	if !r.List {
		c.lessor.take(r, &c.next)
		return
	}
	if l, err := c.workerList(); err != nil {
		r.Err = err
	} else {
		r.Held = &l
	}
	r.Done(r)
}

// workerList describes the leases on record, at most one for each worker.
func (c *core) workerList() (front.WorkerList, error) {
	if !c.replica.Status().Serving {
		return front.WorkerList{}, c.node.redirect()
	}
	now := uint64(max(c.node.cfg.Clock.Wall().UnixMilli(), 0))
	l := front.WorkerList{Workers: []front.WorkerRecord{}}
	_, l.Limit = c.replica.WorkersLeased(now)
	if space := c.replica.Space(); space.IsValid() {
		l.Layout, l.Epoch = snowflake.Layout(space).String(), space.Epoch
	}
	for _, w := range c.replica.WorkerLeases() {
		if w.Session == 0 {
			continue // released
		}
		l.Workers = append(l.Workers, front.WorkerRecord{
			Worker: int(w.Worker), NodeID: oracle.NodeOf(w.Node), Generation: oracle.GenerationOf(w.Node),
			Session: fmt.Sprintf("%016x", w.Session), Slot: int(w.Slot), Fixed: w.Fixed, Start: w.Start, End: w.End,
			Starts: oracle.Instant(w.Start), Ends: oracle.Instant(w.End), Ended: c.replica.HasEnded(w, now), Revoked: w.Revoked,
		})
	}
	return l, nil
}

// Workers describes the worker leases; see front.Operator.
func (n *Node) Workers() (l front.WorkerList, err error) {
	if !n.call(func() { l, err = n.core.workerList() }) {
		err = errStopped
	}
	return l, err
}

// RevokeWorker revokes a worker lease; see front.Operator.
func (n *Node) RevokeWorker(ctx context.Context, worker int, start uint64) error {
	if worker < 0 || worker > math.MaxUint16 {
		return isotone.Errorf(isotone.CodeNotFound, "nobody holds worker %d", worker)
	}
	done := make(chan error, 1)
	r := &front.WorkerRequest{Revoke: true, Fixed: worker, From: start, Done: func(r *front.WorkerRequest) { done <- r.Err }}
	if !n.post(func() { n.core.takeWorkerRequest(r) }) {
		return errStopped
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-n.hosts[0].Done():
		return errStopped
	}
	return isotone.Errorf(isotone.CodeDeadlineExceeded, "the revocation was not confirmed in time: it may still happen; list the workers before you try again")
}
