package http1

import (
	"bytes"

	"github.com/isotone/isotone/internal/front/httpapi"
)

// answerAtOnce answers the requests at the front of b that are not for timestamps, and
// returns how many bytes they have, and whether what follows is one that the lane has no
// answer to. Nothing waits for these answers.
func (h *handler) answerAtOnce(b []byte) (used int, next verdict) {
	l, c := h.lane, h.conn
	a := l.answersFor(c)
	a.refresh(c.Now(), l.cluster())
	out, run, code := c.Buffered(), 0, ""
	next = hot
	for start := len(out); used < len(b) && len(out)-start <= l.cfg.Limits.AnswerBytesMax; run++ {
		r, v := h.read(b[used:])
		if v != hot || r.target == targetTimestamps {
			break
		}
		var answered string
		var ok bool
		if out, answered, ok = a.appendOne(out, r, b[used:], l); !ok {
			next = cold
			break
		}
		if answered != code && run > 0 {
			l.observe(c, code, run, 0)
			run = 0
		}
		code = answered
		used += r.size
	}
	c.SetBuffered(out)
	if run > 0 {
		l.observe(c, code, run, 0)
	}
	return used, next
}

// appendOne appends the answer to r, which b begins with, and returns its code, if there
// is one here.
func (a *answers) appendOne(out []byte, r *request, b []byte, l *Lane) (_ []byte, code string, ok bool) {
	if r.target == targetIDs {
		if l.cfg.IDs == nil {
			return out, "", false
		}
		out, code = a.appendIDs(out, r, r.rawQuery(b), l)
		return out, code, true
	}
	if l.cfg.Live == nil {
		return out, "", false
	}
	answer := l.cfg.Live(r.document(b), r.encoding.of(b), r.tag.of(b))
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
