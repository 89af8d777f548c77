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
func (s *session) runWorker(args [][]byte, r *reply) error {
	if s.front.cfg.Lessor == nil {
		r.b = appendFault(r.b, isotone.Errorf(isotone.CodeNotFound, "no worker ids are leased here"))
		return nil
	}
	q, ok := parseWorker(args)
	if !ok {
		r.b = appendFault(r.b, isotone.Errorf(isotone.CodeInvalidArgument, "%s", workerUsage))
		return nil
	}
	q.Done = s.leased
	s.leasing = q
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
func (s *session) lease() {
	q := s.leasing
	s.asked = s.wire.Now()
	s.waiting = true
	s.front.cfg.Lessor.LeaseWorker(q)
}

// leased answers a WORKER command.
func (s *session) leased(q *front.WorkerRequest) {
	if s.leasing != q {
		panic("resp: a request for a worker id was answered twice")
	}
	s.leasing, s.waiting = nil, false
	code := codeOK
	r := reply{b: s.wire.Buffered(), v3: s.resp3}
	switch {
	case s.closed:
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
	s.front.observe(code, 1, s.wire.Now()-s.asked)
	if s.closed {
		return
	}
	s.wire.SetBuffered(r.b)
	switch {
	case s.front.stopped:
		s.wire.Close(ErrStopped)
	case !s.working: // otherwise work continues
		s.wire.Resume()
	}
}
