package http1

import (
	"bytes"
	"slices"

	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/trace"
)

// answerAtOnce answers the requests at the front of b that are not for timestamps: they
// need no round. It returns how many bytes they have, and cold if what follows is for the
// standard servers.
func (h *handler) answerAtOnce(b []byte) (used int, next verdict) {
	f, c := h.front, h.conn
	a := f.answersFor(c)
	a.refresh(c.Now(), f.cluster())
	out, run, code := c.Buffered(), 0, ""
	next = hot
	var served, made uint64
	start, latest, last := len(out), len(out), false
	for ; used < len(b) && !last && len(out)-start <= f.cfg.Limits.AnswerBytesMax; run++ {
		r, v := h.read(b[used:])
		if v != hot || r.target == targetTimestamps || !h.admitted(r, b[used:]) {
			break
		}
		if run > 0 && h.session.Limited() {
			break // each request counts for the quota by itself
		}
		var answered string
		var ok bool
		latest = len(out)
		if out, answered, ok = f.answerOne(out, a, r, b[used:]); !ok {
			next = cold
			h.session.Unspend(1, r.made())
			break
		}
		if answered != code && run > 0 {
			f.observe(c, code, run, 0)
			run = 0
		}
		code = answered
		if code == httpapi.CodeOK {
			served, made = served+1, made+r.made()
		}
		used += r.size
		last = r.last
	}
	ends := last || used > 0 && used == len(b) && f.draining()
	if ends {
		out = sayClosing(out, latest)
	}
	c.SetBuffered(out)
	if run > 0 {
		f.observe(c, code, run, 0)
		h.session.Used(served, made)
	}
	if ends {
		h.close()
		return len(b), next
	}
	return used, next
}

// sayClosing adds "Connection: close" to the answer that begins at b[at], or puts it in place of
// "Connection: keep-alive".
func sayClosing(b []byte, at int) []byte {
	head := b[at : at+bytes.Index(b[at:], []byte("\r\n\r\n"))+len("\r\n")]
	if kept := bytes.Index(head, []byte("\r\n"+keeping)); kept >= 0 {
		kept += at + len("\r\n")
		return slices.Replace(b, kept, kept+len(keeping), []byte(closing)...)
	}
	return addField(b, at, closing)
}

// answerOne is appendOne, traced and measured if there is a tracer or a meter.
func (f *Front) answerOne(out []byte, a *answers, r *request, b []byte) (_ []byte, code string, ok bool) {
	if f.tracer == nil {
		return f.measureOne(out, a, r, b, nil)
	}
	one, isTraced := f.tracer.begin(r, b)
	if !isTraced {
		return f.measureOne(out, a, r, b, nil)
	}
	at := len(out)
	if out, code, ok = f.measureOne(out, a, r, b, &one.Context); ok {
		f.tracer.end(out, at, a.protocol, code, &one)
	}
	return out, code, ok
}

// measureOne is appendOne, measured if there is a meter. span is nil unless r is traced.
func (f *Front) measureOne(out []byte, a *answers, r *request, b []byte, span *trace.Context) (_ []byte, code string, ok bool) {
	m, at := f.meter, len(out)
	if m == nil {
		return a.appendOne(out, r, b, f)
	}
	one := m.begin(r, b, span)
	if out, code, ok = a.appendOne(out, r, b, f); !ok {
		m.cancel()
		return out, code, ok
	}
	return m.end(out, at, a.protocol, code, &one), code, ok
}

// appendOne appends the answer to r, which b begins with, and returns its code. It is not
// ok if the request is cold.
func (a *answers) appendOne(out []byte, r *request, b []byte, f *Front) (_ []byte, code string, ok bool) {
	at := len(out)
	if out, code, ok = a.appendModern(out, r, b, f); ok && r.legacy {
		out = makeLegacy(out, at, false)
	}
	return out, code, ok
}

// appendModern is appendOne for HTTP/1.1.
func (a *answers) appendModern(out []byte, r *request, b []byte, f *Front) (_ []byte, code string, ok bool) {
	if r.target == targetInterval {
		out, code = a.appendInterval(out, r, r.rawQuery(b), f)
		return out, code, true
	}
	if r.target == targetIDs {
		if f.cfg.IDs == nil {
			return out, "", false
		}
		out, code = a.appendIDs(out, r, r.rawQuery(b), f)
		return out, code, true
	}
	if f.cfg.Live == nil {
		return out, "", false
	}
	answer := f.cfg.Live(r.document(b), r.encoding.of(b), r.tag.of(b))
	if answer == nil {
		return out, "", false
	}
	if a.fields != "" {
		head := bytes.Index(answer, []byte("\r\n\r\n")) + len("\r\n")
		out = append(append(out, answer[:head]...), a.fields...)
		answer = answer[head:]
	}
	return append(out, answer...), httpapi.CodeOK, true
}
