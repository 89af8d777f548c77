package grpc

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// turn has requests that have arrived together. They are submitted and answered together.
type turn struct {
	began   time.Time
	items   []item // in the order of the requests
	batches []*front.Batch
	open    int // the batches without an answer
}

// item is one request of a turn.
type item struct {
	id        uint64
	err       error // it was not submitted
	batch, at int   // where its answer is
}

// keptMax bounds the requests for which a turn keeps memory until the next.
const keptMax = 64

// reset empties t, which is not under way.
func (t *turn) reset() {
	clear(t.batches)
	t.items, t.batches = t.items[:0], t.batches[:0]
	if cap(t.items) > keptMax {
		t.items, t.batches = nil, nil
	}
}

// refuse adds a request that is not submitted.
func (t *turn) refuse(id uint64, err error) { t.items = append(t.items, item{id: id, err: err}) }

// prepared is a request with what its client and the server's settings add.
type prepared struct {
	Ask
	timeline string // "": the default order
	raise    bool
}

// prepare returns a as it is submitted for a session, whose quota it takes, or why it is not.
func (s *Server) prepare(session *access.Session, a Ask) (p prepared, err error) {
	if p.timeline, err = session.RequireTimeline(a.Timeline); err == nil {
		err = session.Charge(1, a.Count)
	}
	if a.Mode == isotone.ReadDefault {
		a.Mode = s.cfg.Mode
	}
	p.Ask, p.raise = a, a.Floor != (isotone.Timestamp{}) && session.May(access.Floors)
	return p, err
}

// batch returns a batch for p.
func (p *prepared) batch() *front.Batch {
	return &front.Batch{Mode: p.Mode, U64: p.U64, Floor: p.Floor, Timeline: p.timeline, Raise: p.raise}
}

// recentMax bounds the batches of a turn that a request may join: the latest ones. So the requests of a few timelines share batches
// in whatever order they come.
const recentMax = 16

// add adds a request to the latest batch that it may be in, or to a new one.
func (t *turn) add(id uint64, p prepared) {
	at := t.placeOf(&p)
	b := t.batches[at]
	t.items = append(t.items, item{id: id, batch: at, at: len(b.Counts)})
	b.Counts = append(b.Counts, p.Count)
}

func (t *turn) placeOf(p *prepared) int {
	n := len(t.batches)
	for at := n - 1; at >= max(0, n-recentMax); at-- {
		if p.fits(t.batches[at]) {
			return at
		}
	}
	t.batches = append(t.batches, p.batch())
	return n
}

// fits reports whether p may be in b.
func (p *prepared) fits(b *front.Batch) bool {
	return p.Mode == b.Mode && p.U64 == b.U64 && p.Floor == b.Floor && p.timeline == b.Timeline && p.raise == b.Raise
}

// submit hands the batches to the backend of a loop. Answered is called in that loop, perhaps within submit, once all have an answer.
func (t *turn) submit(backend front.Backend, answered func()) {
	t.open = len(t.batches)
	if t.open == 0 {
		answered()
		return
	}
	done := func(*front.Batch) {
		if t.open--; t.open == 0 {
			answered()
		}
	}
	for _, b := range t.batches {
		b.Ranges, b.Done = make([]isotone.Range, len(b.Counts)), done
		backend.Submit(b)
	}
}

// isDone reports whether all have an answer.
func (t *turn) isDone() bool { return t.open == 0 }

// moved notes for a session that it has raised the floor.
func (t *turn) moved(session *access.Session) {
	for _, b := range t.batches {
		if b.Moved {
			session.Moved(b.Floor)
		}
	}
}

// result returns the answer of a request.
func (t *turn) result(i *item) (isotone.Range, error) {
	if i.err != nil {
		return isotone.Range{}, i.err
	}
	return resultOf(t.batches[i.batch], i.at)
}

// resultOf returns the answer with an index in b.
func resultOf(b *front.Batch, at int) (isotone.Range, error) {
	if b.Err != nil {
		return isotone.Range{}, FaultOf(b.Err)
	}
	if at >= len(b.Ranges) || b.Ranges[at].Count != b.Counts[at] {
		return isotone.Range{}, httpapi.WrongCount(b.Counts[at])
	}
	return b.Ranges[at], nil
}
