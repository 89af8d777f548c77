package http1

import (
	"bytes"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/loop"
)

// Streams answers the hot requests of one connection of HTTP/2, spelled as in HTTP/1.1. They
// have no order: each is answered by itself, and may come from another user. All methods belong
// to the loop's goroutine. A nil *Streams takes no request.
type Streams struct {
	reader
	deliver func(stream uint32, answer []byte)
	flying  []*pendingBatch // submitted, not answered
	waiting int             // streams that wait for an answer
}

// Answer takes the whole answer to the request of a stream, spelled as in HTTP/1.1. It is
// valid during the call only.
type Answer func(stream uint32, answer []byte)

// OpenStreams returns the hot requests of c, whose answers go to deliver.
func (f *Front) OpenStreams(c *loop.Conn, deliver Answer) *Streams {
	return &Streams{reader: f.reader(c), deliver: deliver}
}

// Waiting returns how many streams wait for an answer.
func (s *Streams) Waiting() int {
	if s == nil {
		return 0
	}
	return s.waiting
}

// Ask takes request, the whole request of a stream, unless the standard servers are to answer
// it: then it returns false, and has done nothing. The body of an answer given within the call has at most
// room bytes; so do those to requests for timestamps, which are given after Submit.
func (s *Streams) Ask(stream uint32, request []byte, room int) bool {
	if s == nil {
		return false
	}
	r, v := s.read(request)
	switch {
	case v != hot || r.size != len(request):
		return false
	case !s.speaksFor(r, request) && !s.become(r, request):
		return false
	case !s.session.May(roles[r.target]):
		return false
	case r.target != targetTimestamps:
		return s.answerAtOnce(stream, r, request, room)
	case r.answerSize() > room:
		return false
	}
	f := s.front
	if !f.group.add(f, r, request) {
		s.Submit()
		f.group.add(f, r, request)
	}
	f.group.asks[f.group.len()-1].stream = stream
	s.waiting++
	return true
}

// become has the session speak for the one from whom r comes, if that is known at once and no
// other request waits: others are for the standard servers, where each request has a session.
func (s *Streams) become(r *request, b []byte) bool {
	if len(s.flying) > 0 || !s.front.group.empty() {
		return false
	}
	s.reset()
	if r.credentials == (span{}) {
		return true
	}
	value := r.credentials.of(b)
	version := s.session.Version()
	c, ok := access.ParseAuthorization(strings.Clone(value))
	if !ok || len(value) > credentialsMax || !s.session.Recall(c) {
		return false
	}
	s.credentials, s.version = append(s.credentials, value...), version
	return true
}

// answerAtOnce answers a request that needs no round.
func (s *Streams) answerAtOnce(stream uint32, r *request, b []byte, room int) bool {
	f := s.front
	if !s.session.Spend(1, r.made()) {
		return false
	}
	a := f.answersFor(s.conn)
	a.refresh(s.conn.Now(), f.cluster())
	out, code, ok := f.answerOne(f.scratch[:0], a, r, b)
	if !ok || len(out) > room {
		s.session.Unspend(1, r.made())
		return false
	}
	if code == httpapi.CodeOK {
		s.session.Used(1, r.made())
	}
	f.keep(out)
	s.deliver(stream, out)
	f.observe(s.conn, code, 1, 0)
	return true
}

// keep has out used again as scratch, unless it is large.
func (f *Front) keep(out []byte) {
	if cap(out) <= scratchMax {
		f.scratch = out
	}
}

// scratchMax bounds the scratch that a front keeps.
const scratchMax = 64 << 10

// Submit hands over what was asked for since.
func (s *Streams) Submit() {
	if s == nil || s.front.group.empty() {
		return
	}
	p := s.prepare(s)
	s.flying = append(s.flying, p)
	s.hand(p)
	s.front.group.reset()
}

// answer delivers the answers of p, which s submitted.
func (s *Streams) answer(p *pendingBatch) {
	f := s.front
	s.flying = slices.DeleteFunc(s.flying, func(each *pendingBatch) bool { return each == p })
	if p.batch.Moved {
		s.session.Moved(p.batch.Floor)
	}
	if p.batch.Err == nil {
		s.session.Used(uint64(len(p.asks)), p.sum)
	}
	a := f.answersFor(s.conn)
	a.refresh(s.conn.Now(), f.cluster())
	next := p.answering()
	for next.has() {
		stream := p.asks[next.index].stream
		out := a.appendNext(f.scratch[:0], &next, false)
		f.keep(out)
		if stream != 0 {
			s.waiting--
			s.deliver(stream, out)
		}
	}
	f.observe(s.conn, next.code, len(p.asks), s.conn.Now()-p.began)
}

// Forget has the answer of a stream not delivered, and reports whether the stream waits for one.
func (s *Streams) Forget(stream uint32) bool {
	s.Submit()
	if s == nil {
		return false
	}
	for _, p := range s.flying {
		for i := range p.asks {
			if p.asks[i].stream == stream {
				p.asks[i].stream = 0
				s.waiting--
				return true
			}
		}
	}
	return false
}

// IsWaiting reports whether a stream waits for an answer.
func (s *Streams) IsWaiting(stream uint32) bool {
	return s != nil && (slices.ContainsFunc(s.front.group.asks, func(q ask) bool { return q.stream == stream }) ||
		slices.ContainsFunc(s.flying, func(p *pendingBatch) bool {
			return slices.ContainsFunc(p.asks, func(q ask) bool { return q.stream == stream })
		}))
}

// Closed says that the connection has ended.
func (s *Streams) Closed() {
	if s == nil {
		return
	}
	for _, p := range s.flying {
		s.abandon(p)
	}
	s.flying, s.waiting = nil, 0
}

// Cut splits an answer into its head, which ends with a line end, and its body.
func Cut(answer []byte) (head, body []byte) {
	at := bytes.Index(answer, []byte("\r\n\r\n"))
	return answer[:at+len("\r\n")], answer[at+len("\r\n\r\n"):]
}
