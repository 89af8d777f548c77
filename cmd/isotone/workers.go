package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/operator"
)

// workerCmd has the commands about worker leases; see docs/operations.md.
type workerCmd struct {
	List   workerListCmd   `cmd:"" help:"List the worker leases: which node or client makes IDs of which worker, and until when."`
	Revoke workerRevokeCmd `cmd:"" help:"End the renewals of a worker's lease. The worker is free when the lease ends."`
}

const workersPath = "/admin/workers"

type workerListCmd struct{ operatorFlags }

// Run lists the worker leases.
func (c *workerListCmd) Run(ctx context.Context, con console) error {
	var l front.WorkerList
	if err := c.do(ctx, http.MethodGet, workersPath, nil, &l); err != nil {
		return err
	}
	return c.print(con, l, func(w io.Writer) { describeWorkerList(w, l) })
}

func describeWorkerList(w io.Writer, l front.WorkerList) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "WORKER\tHOLDER\tSESSION\tBEGAN\tENDS\tNOTE")
	for _, r := range l.Workers {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Worker, holderOf(r), r.Session, r.Starts, r.Ends, workerNote(r))
	}
	_ = t.Flush()
	fmt.Fprintf(w, "%d of %d workers are held", len(l.Workers), l.Limit)
	if l.Layout != "" {
		fmt.Fprintf(w, "; layout %s", l.Layout)
	}
	fmt.Fprintln(w)
}

func holderOf(r front.WorkerRecord) string {
	if r.NodeID == 0 {
		return "client"
	}
	return fmt.Sprintf("node %d", r.NodeID)
}

// workerNote says what is special about a lease.
func workerNote(r front.WorkerRecord) string {
	switch {
	case r.Revoked && r.Ended:
		return "revoked; free"
	case r.Revoked:
		return "revoked; free when it ends"
	case r.Ended && r.Fixed && r.NodeID != 0:
		return "ended; kept for the node, whose worker is fixed"
	case r.Ended:
		return "ended; free unless it is renewed first"
	case r.Fixed:
		return "fixed"
	}
	return ""
}

type workerRevokeCmd struct {
	operatorFlags
	Worker int    `arg:"" help:"Number of the worker."`
	Start  uint64 `name:"start" placeholder:"MS" help:"Revoke only the lease that began at this unix millisecond, as worker list --json shows it. For scripts: repeated, the command never revokes the next lease."`
}

// Run revokes the lease that the worker has now. One that is revoked already is no error.
func (c *workerRevokeCmd) Run(ctx context.Context, con console) error {
	var l front.WorkerList
	if err := c.do(ctx, http.MethodGet, workersPath, nil, &l); err != nil {
		return err
	}
	r, held := leaseOf(l, c.Worker)
	switch {
	case !held:
		return fmt.Errorf("nobody holds worker %d; see: isotone worker list", c.Worker)
	case c.Start != 0 && c.Start != r.Start:
		return fmt.Errorf("the lease of worker %d began at %d, not at %d; see: isotone worker list", c.Worker, r.Start, c.Start)
	case !r.Revoked:
		if err := c.confirm(ctx, con, fmt.Sprintf("The lease of worker %d, held by %s (session %s), is not renewed any more. It ends at %s.", r.Worker, holderOf(r), r.Session, r.Ends)); err != nil {
			return err
		}
		if err := c.revoke(ctx, r.Start, &l); err != nil {
			return err
		}
	}
	return c.print(con, l, func(w io.Writer) {
		now, held := leaseOf(l, c.Worker)
		if !held || now.Start != r.Start {
			fmt.Fprintf(w, "the lease of worker %d is over\n", c.Worker)
			return
		}
		fmt.Fprintf(w, "worker %d is revoked, and free from %s on at the latest\n", c.Worker, now.Ends)
	})
}

// revoke revokes the lease that began at start. After an attempt whose answer was lost it looks
// whether there is anything left to do.
func (c *workerRevokeCmd) revoke(ctx context.Context, start uint64, l *front.WorkerList) error {
	err := c.do(ctx, http.MethodPost, workersPath, admin.WorkerAction{Action: admin.RevokeWorker, Worker: &c.Worker, Start: start}, l)
	var unsure *operator.UnsureError
	if !errors.As(err, &unsure) {
		return err
	}
	var now front.WorkerList
	if c.do(ctx, http.MethodGet, workersPath, nil, &now) != nil {
		return err
	}
	if r, held := leaseOf(now, c.Worker); held && r.Start == start && !r.Revoked {
		return unsure.Cause
	}
	*l = now
	return nil
}

// leaseOf returns the record of a worker, if it is held.
func leaseOf(l front.WorkerList, worker int) (front.WorkerRecord, bool) {
	for _, r := range l.Workers {
		if r.Worker == worker {
			return r, true
		}
	}
	return front.WorkerRecord{}, false
}
