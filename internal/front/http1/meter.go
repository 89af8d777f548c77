package http1

import (
	"bytes"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
)

// meter measures the requests of a front one by one, and gives their answers a request ID.
//
// A turn of the loop works for many requests, so the CPU time since the last settlement is
// divided equally among the requests that were answered in it. Of one request that is an
// estimate; the sum is right.
type meter struct {
	recorder *stats.Recorder
	loop     *loop.Loop
	ids      *requestid.Maker
	clock    stats.Meter
	started  bool // clock is
	inFlight int  // begun and not ended
	ended    int  // since the last settlement, sampled or not
	records  []stats.Record
	field    []byte // scratch for the header field
}

// measured is a request that is being measured.
type measured struct {
	requestid.Identity
	path    string
	sampled bool
	began   time.Time
}

// begin begins to measure r, which b begins with. span is its span, nil unless it is traced.
func (m *meter) begin(r *request, b []byte, span *trace.Context) (one measured) {
	switch {
	case !m.started:
		m.clock.Start() // on the goroutine of the loop
		m.started = true
	case m.inFlight == 0 && m.ended == 0:
		m.clock.Lap() // without what the loop did between requests
	}
	m.inFlight++
	one.Identity = m.ids.Start(string(b[r.requestID.from:r.requestID.to]), r.trace.of(b))
	if span != nil {
		one.Trace = requestid.Trace{ID: span.Trace, Span: span.Span, Flags: 1}
	}
	if one.sampled = m.recorder.Sampled(one.ID); one.sampled {
		one.path = r.pathOf(b)
		one.began = time.Now()
	}
	return one
}

// pathOf returns the path of r, which b begins with.
func (r *request) pathOf(b []byte) string {
	switch {
	case r.target != targetLive:
		return paths[r.target]
	case r.name == (span{}):
		return statePath
	}
	return paths[targetLive] + r.name.of(b)
}

// cancel forgets a request that is cold.
func (m *meter) cancel() { m.inFlight-- }

// end adds the ID to the answer of one, which begins at b[at], and ends the measurement.
func (m *meter) end(b []byte, at int, protocol, code string, one *measured) []byte {
	status := statusAt(b, at)
	m.field = append(append(append(m.field[:0], requestid.FieldID+": "...), one.ID...), "\r\n"...)
	b = slices.Insert(b, at+bytes.IndexByte(b[at:], '\n')+1, m.field...)
	m.finish(protocol, status, code, one)
	return b
}

// finish ends the measurement of one; a status of 0 says that it has no answer.
func (m *meter) finish(protocol string, status int, code string, one *measured) {
	m.inFlight--
	if m.ended++; m.ended == 1 {
		m.loop.Post(m.settle) // runs when this turn has ended
	}
	if !one.sampled {
		return
	}
	now := time.Now()
	m.records = append(m.records, stats.Record{
		Time: now, ID: one.ID, Trace: one.Trace.ID, Protocol: protocol, Method: "GET", Path: one.path,
		Status: status, Code: code, Section: stats.Section{Wall: now.Sub(one.began)},
	})
}

// settle divides the CPU time among the requests that have ended, and records them.
func (m *meter) settle() {
	if m.ended == 0 {
		return
	}
	share := m.clock.Lap().Share(m.ended)
	for i := range m.records {
		r := &m.records[i]
		r.Section = r.Section.Plus(share)
		m.recorder.Observe(*r)
	}
	clear(m.records)
	m.records, m.ended = m.records[:0], 0
}
