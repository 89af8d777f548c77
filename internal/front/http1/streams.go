package http1

import (
	"bytes"
	"slices"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/snowflake"
)

// Streams answers the hot requests of one connection of HTTP/2, spelled as in HTTP/1.1. They
// have no order: each is answered by itself, and may come from another user. All methods belong
// to the loop's goroutine. A nil *Streams takes no request.
type Streams struct {
	reader
	to      Receiver
	flying  []*pendingBatch // submitted, not answered
	waiting int             // streams that wait for an answer
}

// Receiver takes the answers of streams. What it is given is valid during the call only.
type Receiver interface {
	// Deliver takes the whole answer to a request, spelled as in HTTP/1.1.
	Deliver(stream uint32, answer []byte)
	// DeliverRange takes the answer to [Streams.AskRange], or why there is none. With u64, issued is as in [front.Batch].
	DeliverRange(stream uint32, issued isotone.Range, u64 bool, err error)
}

// OpenStreams returns the hot requests of c, whose answers go to a receiver.
func (f *Front) OpenStreams(c *loop.Conn, to Receiver) *Streams {
	return &Streams{reader: f.reader(c), to: to}
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
	case !s.isFrom(r.credentials.of(request)) || !s.mayAsk(r):
		return false
	case r.target != targetTimestamps:
		return s.answerAtOnce(stream, r, request, room)
	case r.answerSize() > room:
		return false
	}
	s.add(stream, r, request, false)
	return true
}

// add adds a request for timestamps to the group.
func (s *Streams) add(stream uint32, r *request, text []byte, call bool) {
	f := s.front
	if !f.group.add(f, r, text) {
		s.Submit()
		f.group.add(f, r, text)
	}
	q := &f.group.asks[f.group.len()-1]
	q.stream, q.call = stream, call
	s.waiting++
}

// Call is a request for a range of timestamps that is spelled in another protocol.
type Call struct {
	Count uint64 // valid for the form
	Mode  isotone.ReadMode
	U64   bool
	Floor isotone.Timestamp
	// Timeline is "" for the default order.
	Timeline string
	// Credentials is the value of Authorization; empty: none.
	Credentials string
}

// AskRange is Ask for a call. It takes none if requests are measured or traced one by one.
func (s *Streams) AskRange(stream uint32, c *Call) bool {
	if s == nil || s.front.meter != nil || s.front.tracer != nil {
		return false
	}
	r := request{target: targetTimestamps, count: c.Count, format: httpapi.Range, u64: c.U64, mode: c.Mode, floor: c.Floor, timeline: c.Timeline}
	if !s.isFrom(c.Credentials) || !s.mayAsk(&r) {
		return false
	}
	s.add(stream, &r, nil, true)
	return true
}

// MakeIDs makes up to 64 IDs for a call, which are valid until the next. It reports false if the standard servers are to answer, which
// also know why there are none.
func (s *Streams) MakeIDs(credentials string, n uint64) ([]snowflake.ID, bool) {
	if s == nil || s.front.cfg.IDs == nil || s.front.meter != nil || s.front.tracer != nil || n > binaryMax {
		return nil, false
	}
	if !s.isFrom(credentials) || !s.mayAsk(&request{target: targetIDs}) || !s.session.Spend(1, n) {
		return nil, false
	}
	ids := s.front.ids[:n]
	if s.front.cfg.IDs.Fill(ids) != nil {
		s.session.Unspend(1, n)
		return nil, false
	}
	s.session.Used(1, n)
	s.front.observeAs(protocolCall, httpapi.CodeOK, 1, 0)
	return ids, true
}

// protocolCall is the name for Observe of calls: that of internal/front/grpc.
const protocolCall = "grpc"

// Fields returns the fields that each answer has now, spelled as in HTTP/1.1: the date, the cluster's ID, and Alt-Svc.
func (s *Streams) Fields() []byte {
	a := s.front.answersFor(s.conn)
	a.refresh(s.conn.Now(), s.front.cluster())
	return a.date
}

// isFrom reports whether the session speaks for the one with those credentials.
func (s *Streams) isFrom(credentials string) bool {
	return s.isFor(credentials) || s.become(credentials)
}

// become has the session speak for the one with those credentials, if that is known at once and no
// other request waits: others are for the standard servers, where each request has a session.
func (s *Streams) become(credentials string) bool {
	if len(s.flying) > 0 || !s.front.group.empty() {
		return false
	}
	s.reset()
	if credentials == "" {
		return true
	}
	version := s.session.Version()
	c, ok := access.ParseAuthorization(strings.Clone(credentials))
	if !ok || len(credentials) > credentialsMax || !s.session.Recall(c) {
		return false
	}
	s.credentials, s.version = append(s.credentials, credentials...), version
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
	s.to.Deliver(stream, out)
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
		q, issued := p.asks[next.index], isotone.Range{}
		if q.stream != 0 {
			s.waiting--
		}
		if q.call {
			if next.failed == nil {
				issued = p.batch.Ranges[next.index]
			}
			if next.index++; q.stream != 0 {
				s.to.DeliverRange(q.stream, issued, p.batch.U64, next.failed)
			}
			continue
		}
		out := a.appendNext(f.scratch[:0], &next, false)
		if f.keep(out); q.stream != 0 {
			s.to.Deliver(q.stream, out)
		}
	}
	code := next.code
	if next.failed != nil {
		code = string(front.ErrorOf(next.failed).Code)
	}
	s.observe(p, code, s.conn.Now()-p.began)
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
