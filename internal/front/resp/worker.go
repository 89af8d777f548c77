package resp

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// workerUsage is the error for an invalid WORKER command.
const workerUsage = "want WORKER LEASE session from-ms length-ms [FIXED worker], WORKER RELEASE session worker start-ms next-ms, " +
	"WORKER LIST, or WORKER REVOKE worker [start-ms]"

// isOperators reports whether a WORKER command is for operators.
func isOperators(args [][]byte) bool {
	return slices.Contains(operatorsCommands, subcommand(args))
}

// workerCommand is about leases of workers, and operatorsCommands are those of its subcommands that are for operators.
const workerCommand = "WORKER"

var operatorsCommands = []string{"LIST", "REVOKE"}

// leasing is a WORKER command that waits.
type leasing struct {
	request *front.WorkerRequest
	settle  func(worker int, start, end int64) // counts what is leased for the quota; nil: nothing to count
}

// runWorker hands a WORKER command to the lessor. The connection waits for the answer.
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
	c.leasing = &leasing{request: q}
	return nil
}

// parseWorker parses a WORKER command.
func parseWorker(args [][]byte) (*front.WorkerRequest, bool) {
	q := &front.WorkerRequest{Fixed: -1}
	switch {
	case isOperators(args):
		return parseOperators(args)
	case len(args) < 5:
		return nil, false
	}
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

// parseOperators parses WORKER LIST and WORKER REVOKE.
func parseOperators(args [][]byte) (*front.WorkerRequest, bool) {
	if subcommand(args) == "LIST" {
		return &front.WorkerRequest{List: true}, len(args) == 2
	}
	if len(args) != 3 && len(args) != 4 {
		return nil, false
	}
	worker, err := strconv.ParseUint(string(args[2]), 10, 16)
	q := &front.WorkerRequest{Revoke: true, Fixed: int(worker)}
	if err == nil && len(args) == 4 {
		q.From, err = strconv.ParseUint(string(args[3]), 10, 63)
	}
	return q, err == nil
}

// lease hands the request of runWorker to the lessor.
func (c *conn) lease() {
	q := c.leasing.request
	c.asked = c.wire.Now()
	c.waiting = true
	if !q.Release && !q.List && !q.Revoke {
		if c.leasing.settle, q.Err = c.session.TakeWorker(q.Session, q.Fixed); q.Err != nil {
			c.leased(q)
			return
		}
	}
	c.front.cfg.Lessor.LeaseWorker(q)
}

// leased answers a WORKER command.
func (c *conn) leased(q *front.WorkerRequest) {
	l := c.leasing
	if l == nil || l.request != q {
		panic("resp: a request for a worker id was answered twice")
	}
	c.leasing, c.waiting = nil, false
	c.settleQuota(l)
	code := codeOK
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	if q.Revoke {
		did := codeOK
		if q.Err != nil {
			did = string(faultOf(q.Err).Code)
		}
		c.session.Did("WORKER REVOKE "+strconv.Itoa(q.Fixed), did)
	}
	switch {
	case c.closed:
		code = string(isotone.CodeDeadlineExceeded)
	case q.Err != nil:
		e := faultOf(q.Err)
		code = string(e.Code)
		if r.b = appendFault(r.b, e); e.Code == isotone.CodeNotLeader {
			r.b = appendRedirect(c.wire.Buffered(), "MOVED", c.slot, e.Leader)
		}
	case q.Release:
		r.ok()
	case q.List:
		r.workers(q.Held)
	case q.Revoke:
		r.integer(q.Lease.End)
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
func (c *conn) settleQuota(l *leasing) {
	switch q := l.request; {
	case q.List, q.Revoke:
	case q.Release:
		if q.Err == nil {
			c.session.GiveBackWorker(q.Session, q.Fixed, int64(min(q.From, math.MaxInt64)), int64(min(q.Next, math.MaxInt64)))
		}
	case l.settle == nil: // the quota was used up
	case q.Err != nil:
		l.settle(q.Fixed, 0, 0)
	default:
		l.settle(q.Worker, q.Lease.Start, q.Lease.End)
	}
}

// workers appends the leases on record: a map for each, or the same as a list in RESP2.
func (r *reply) workers(l *front.WorkerList) {
	r.array(len(l.Workers))
	for _, w := range l.Workers {
		r.dict(10)
		numbers := [...]struct {
			name  string
			value uint64
		}{
			{"worker", uint64(w.Worker)}, {"node", w.NodeID}, {"generation", w.Generation}, {"slot", uint64(w.Slot)},
			{"start", w.Start}, {"end", w.End}, {"fixed", bit(w.Fixed)}, {"ended", bit(w.Ended)}, {"revoked", bit(w.Revoked)},
		}
		for _, n := range numbers {
			r.bulk(n.name)
			r.integer(int64(n.value))
		}
		r.bulk("session")
		r.bulk(w.Session)
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
