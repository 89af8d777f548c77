package pd

import (
	"errors"
	"io"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// pathTso is the method of PD, which serves the default order. pathGroupTso is that of its service for timestamps, where requests have a keyspace.
const pathTso, pathGroupTso = "/pdpb.PD/Tso", "/tsopb.TSO/Tso"

// globalLocation is the dc_location of timestamps that are in order everywhere. Others are "local TSO", an order for each data
// center, which PD has deprecated.
const globalLocation = "global"

// tso is one call of Tso. All requests that wait on it share a request to the backend, and those of other calls join it there.
type tso struct {
	server  *Server
	backend front.Backend
	table   front.TimelineTable // nil: the call is of pathTso
	session *access.Session
	to      grpc.Sender
	release func() // of the stream among those of its client

	asked    Batch
	keyspace uint32 // of the batch, and who serves it
	by       served

	batch  front.Batch // while under way, of the backend
	counts [1]uint64
	ranges [1]isotone.Range
	began  time.Time
	out    []byte

	flying bool
	closed bool
	end    error // nil: none yet
}

// errStopping ends calls when the server stops, or closes a connection that was idle. Clients of PD know it by "is not leader".
var errStopping = isotone.Errorf(isotone.CodeNoLeader, "this node ends the call: it stops and is not leader any more, or nothing came for long; open another")

// Open returns what answers a call in the loop of backend, or nil for another method than Tso.
func (s *Server) Open(path string, backend front.Backend, session *access.Session, to grpc.Sender) grpc.Duplex {
	t := &tso{server: s, backend: backend, session: session, to: to}
	if path == pathGroupTso && s.cfg.Groups != nil {
		t.table, _ = backend.(front.TimelineTable)
	}
	if path != pathTso && t.table == nil {
		return nil
	}
	t.batch.Done = func(*front.Batch) { t.answer() }
	if t.release, t.end = session.TakeStream(); t.end != nil {
		s.observe(t.end, 1, time.Now())
	}
	return t
}

// Take implements [grpc.Duplex].
func (t *tso) Take(b []byte, last bool) (used int, end error) {
	if t.flying {
		return 0, nil
	}
	if t.end == nil {
		used = t.collect(b, last)
	}
	if len(t.asked.Counts) == 0 {
		return used, t.end
	}
	t.submit()
	return used, nil
}

// collect adds the requests that b begins with to the batch, as far as they fit, and notes if the call ends after them.
func (t *tso) collect(b []byte, last bool) (used int) {
	for {
		message, rest, err := grpc.ParseFrame(b[used:])
		var r Request
		var by served
		switch {
		case err != nil:
		case message == nil && !last:
			return used
		case message == nil && len(rest) == 0:
			err = io.EOF
		case message == nil:
			err = isotone.Errorf(isotone.CodeInvalidArgument, "the call ends within a message")
		default:
			r, by, err = t.check(message)
		}
		if err != nil {
			t.refuse(err)
			return used
		}
		if !t.add(r, by) {
			return used
		}
		used = len(b) - len(rest)
	}
}

// refuse ends the call after the batch, for a request that is wrong, or with io.EOF.
func (t *tso) refuse(err error) {
	if t.end = err; err != io.EOF {
		t.server.observe(err, 1, time.Now())
	}
}

// add adds a request to the batch if it fits. All of a batch are of one keyspace.
func (t *tso) add(r Request, by served) bool {
	if len(t.asked.Counts) == 0 {
		t.keyspace, t.by = r.Keyspace, by
	}
	return t.keyspace == r.Keyspace && t.asked.Add(r.Count)
}

// check returns a request, and who serves it. Words and codes of its errors are those of PD, where it refuses the same.
func (t *tso) check(message []byte) (r Request, by served, err error) {
	r, err = ParseRequest(message)
	own := t.backend.Status().ClusterID
	switch {
	case err != nil:
		return r, by, err
	case own == 0:
		return r, by, errUnknownCluster
	case r.Cluster != own:
		return r, by, isotone.Errorf(isotone.CodeWrongCluster, "mismatch cluster id, need %d but got %d", own, r.Cluster)
	case r.Location != "" && r.Location != globalLocation:
		return r, by, isotone.Errorf(isotone.CodeInvalidArgument, "dc-location %.80q: Isotone has global timestamps only", r.Location)
	case r.Count < 1 || r.Count > CountMax:
		return r, by, isotone.Errorf(isotone.CodeInvalidArgument, "tso count %d: want 1 to %d", r.Count, uint64(CountMax))
	}
	if t.table == nil {
		r.Keyspace = 0
		return r, by, nil
	}
	by, _, err = t.server.cfg.Groups.serves(r.Keyspace, t.table)
	return r, by, err
}

// submit requests what the batch needs.
func (t *tso) submit() {
	t.flying, t.began = true, time.Now()
	t.counts[0], t.ranges[0] = t.asked.Ask(), isotone.Range{}
	t.batch.Mode, t.batch.U64, t.batch.Counts, t.batch.Ranges, t.batch.Err = t.server.cfg.Mode, true, t.counts[:], t.ranges[:], nil
	err := t.session.Require(access.Timestamps)
	if err == nil {
		t.batch.Timeline, err = t.session.RequireTimeline(t.by.timeline())
	}
	if err == nil {
		err = t.session.Charge(uint64(len(t.asked.Counts)), t.asked.Total())
	}
	if err != nil {
		t.batch.Err = err
		t.answer()
		return
	}
	t.backend.Submit(&t.batch)
}

// answer is the Done of the batch.
func (t *tso) answer() {
	t.flying = false
	err := t.batch.Err
	if err == nil && (len(t.batch.Ranges) != 1 || t.batch.Ranges[0].Count != t.counts[0]) {
		err = httpapi.WrongCount(t.counts[0])
	}
	t.server.observe(err, len(t.asked.Counts), t.began)
	if err != nil {
		t.end = notLeader(err)
	} else {
		t.session.Used(uint64(len(t.asked.Counts)), t.asked.Total())
	}
	if t.closed {
		return
	}
	if err == nil {
		t.send(front.Range64(t.batch.Ranges[0]))
	}
	t.asked.Reset()
	t.to.Resume()
}

// outKept bounds the buffer that a call keeps between answers: it may wait for long.
const outKept = 1 << 10

// send sends the answers of the batch.
func (t *tso) send(r isotone.Range64) {
	cluster := t.backend.Status().ClusterID
	t.out = t.out[:0]
	_ = t.asked.Place(r, func(count uint64, last isotone.Timestamp64) error {
		at := len(t.out)
		t.out = grpc.EndFrame(AppendGroupAnswer(grpc.BeginFrame(t.out), cluster, t.keyspace, t.by.id(), count, last), at)
		return nil
	})
	if t.to.Send(t.out); cap(t.out) > outKept {
		t.out = nil
	}
}

// notLeader says that a node does not lead, or does not own a timeline, in the words by which clients of PD know it: they ask the members who
// does. A timeline that was sealed in the meantime is for those words, too.
func notLeader(err error) error {
	if errors.Is(err, isotone.ErrNotFound) {
		return notServed("the keyspace group is not served: %v", err)
	}
	if errors.Is(err, isotone.ErrNotLeader) || errors.Is(err, isotone.ErrNoLeader) {
		e := *front.ErrorOf(err)
		e.Message = "this node is not leader: " + e.Message
		return &e
	}
	return err
}

// IsBusy implements [grpc.Duplex].
func (t *tso) IsBusy() bool { return t.flying }

// Stop implements [grpc.Duplex].
func (t *tso) Stop() {
	if t.end == nil {
		t.end = errStopping
	}
}

// Closed implements [grpc.Duplex].
func (t *tso) Closed() {
	t.closed = true
	if t.release != nil {
		t.release()
	}
}
