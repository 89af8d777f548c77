package resp

import (
	"math"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// workerUsage is the error for an invalid WORKER command.
const workerUsage = "want WORKER LEASE session from-ms length-ms [FIXED worker], or WORKER RELEASE session worker start-ms next-ms"

// runWorker hands WORKER LEASE and WORKER RELEASE to the lessor. The connection waits for
// the answer.
func (c *conn) runWorker(args [][]byte, r *reply) error {
	if c.front.cfg.Lessor == nil {
		r.b = appendFault(r.b, isotone.Errorf(isotone.CodeNotFound, "no worker ids are leased here"))
		return nil
	}
	q, ok := parseWorker(args)
	if !ok {
		r.b = appendFault(r.b, isotone.Errorf(isotone.CodeInvalidArgument, "%s", workerUsage))
		return nil
	}
	q.Done = c.leased
	c.leasing = q
	return nil
}

// parseWorker parses a WORKER command.
func parseWorker(args [][]byte) (*front.WorkerRequest, bool) {
	q := &front.WorkerRequest{Fixed: -1}
	session, err := strconv.ParseUint(string(args[2]), 16, 64)
	ok := err == nil && len(args[2]) == 16 && session != 0
	q.Session = session
	number := func(b []byte) uint64 {
		n, err := strconv.ParseUint(string(b), 10, 63)
		ok = ok && err == nil
		return n
	}
	switch subcommand(args) {
	case "LEASE":
		if ok = ok && (len(args) == 5 || len(args) == 7 && strings.EqualFold(string(args[5]), "FIXED")); !ok {
			return nil, false
		}
		q.From, q.Length = number(args[3]), number(args[4])
		if len(args) == 7 {
			worker := number(args[6])
			ok = ok && worker <= math.MaxUint16
			q.Fixed = int(worker)
		}
		return q, ok
	case "RELEASE":
		if ok = ok && len(args) == 6; !ok {
			return nil, false
		}
		worker := number(args[3])
		q.Release, q.Fixed, q.From, q.Next = true, int(worker), number(args[4]), number(args[5])
		return q, ok && worker <= math.MaxUint16
	default:
		return nil, false
	}
}

// lease hands the request of runWorker to the lessor.
func (c *conn) lease() {
	q := c.leasing
	c.asked = c.wire.Now()
	c.waiting = true
	if c.settle = nil; !q.Release {
		if c.settle, q.Err = c.session.TakeWorker(q.Session, q.Fixed); q.Err != nil {
			c.leased(q)
			return
		}
	}
	c.front.cfg.Lessor.LeaseWorker(q)
}

// leased answers a WORKER command.
func (c *conn) leased(q *front.WorkerRequest) {
	if c.leasing != q {
		panic("resp: a request for a worker id was answered twice")
	}
	c.leasing, c.waiting = nil, false
	c.settleQuota(q)
	code := codeOK
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	switch {
	case c.closed:
		code = string(isotone.CodeDeadlineExceeded)
	case q.Err != nil:
		e := faultOf(q.Err)
		code = string(e.Code)
		r.b = appendFault(r.b, e)
	case q.Release:
		r.ok()
	default:
		r.array(5)
		r.integer(int64(q.Worker))
		r.integer(q.Lease.Start)
		r.integer(q.Lease.End)
		r.bulk(q.Layout.String())
		r.integer(q.Layout.Epoch)
	}
	c.front.observe(code, 1, c.wire.Now()-c.asked)
	if c.closed {
		return
	}
	c.wire.SetBuffered(r.b)
	c.goOn()
}

// settleQuota counts what was leased or given back for the client's quota.
func (c *conn) settleQuota(q *front.WorkerRequest) {
	switch {
	case q.Release:
		if q.Err == nil {
			c.session.GiveBackWorker(q.Session, q.Fixed)
		}
	case c.settle == nil: // the quota was used up
	case q.Err != nil:
		c.settle(q.Fixed, 0)
	default:
		c.settle(q.Worker, q.Lease.End)
	}
}
