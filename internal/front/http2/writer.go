package http2

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// smallMax is how much of an answer is kept until the handler has ended, so that it gets a Content-Length.
const smallMax = 4 << 10

var smalls = sync.Pool{New: func() any { return new([smallMax]byte) }}

// writer is the [http.ResponseWriter] of an exchange. Its methods belong to the handler's goroutine.
type writer struct {
	exchange *exchange
	header   http.Header
	fields   http.Header // as they were when the status was written
	status   int         // 0: not written yet
	length   int64
	written  int64
	small    *[smallMax]byte // nil: none, or the head is on its way
	size     int             // of what small has
	begun    bool            // the head is on its way
}

func (w *writer) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader sets the status; later calls have no effect. Those of 1xx are ignored.
func (w *writer) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status, w.length, w.fields = status, -1, maps.Clone(w.Header())
	if value := w.fields.Get("Content-Length"); value != "" {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
			w.length = n
		} else {
			w.fields.Del("Content-Length")
		}
	}
}

// hasBody reports whether answers with the status have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// Write adds to the answer. Its errors are http.ErrBodyNotAllowed, http.ErrContentLength, and that the
// stream has ended.
func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !hasBody(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(p)); w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if !w.begun {
		if w.small == nil {
			w.small = smalls.Get().(*[smallMax]byte)
		}
		if w.size+len(p) <= smallMax {
			w.size += copy(w.small[w.size:], p)
			return len(p), nil
		}
		if err := w.begin(p); err != nil {
			return 0, err
		}
	}
	if w.isHead() {
		return len(p), nil
	}
	if err := w.exchange.push(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) isHead() bool { return w.exchange.request.Method == http.MethodHead }

// begin sends the head and what small has. more is what comes next, for its type.
func (w *writer) begin(more []byte) error {
	kept := w.kept()
	defer w.release()
	w.prepare(kept, more)
	if w.isHead() {
		kept = nil
	}
	return w.exchange.push(kept)
}

func (w *writer) kept() []byte {
	if w.small == nil {
		return nil
	}
	return w.small[:w.size]
}

func (w *writer) release() {
	if w.small != nil {
		smalls.Put(w.small)
		w.small, w.size = nil, 0
	}
}

// prepare makes the head of the exchange.
func (w *writer) prepare(kept, more []byte) {
	w.begun = true
	h := w.fields
	if len(h["Date"]) == 0 {
		h["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	if first := append(kept[:len(kept):len(kept)], more[:min(len(more), 512)]...); len(first) > 0 && len(h["Content-Type"]) == 0 {
		h["Content-Type"] = []string{http.DetectContentType(first)}
	}
	x := w.exchange
	fields := appendFields([]field{{Name: ":status", Value: strconv.Itoa(w.status)}}, h)
	x.mu.Lock()
	x.head, x.last = fields, h.Get("Connection") == "close"
	x.mu.Unlock()
}

// FlushError sends what was written, and waits until it is sent: a handler that writes only then has nothing queued for a client
// that does not read.
func (w *writer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if !w.begun {
		if err := w.begin(nil); err != nil {
			return err
		}
	}
	return w.exchange.flush()
}

// Flush is FlushError without the error.
func (w *writer) Flush() { _ = w.FlushError() }

// trailers returns the fields that follow the answer, as a handler for net/http sets them: with [http.TrailerPrefix], or under
// a name in the field Trailer.
func (w *writer) trailers() []field {
	late := http.Header{}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			late[name] = values
		}
	}
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values := w.header[name]; len(values) > 0 {
				late[name] = values
			}
		}
	}
	return appendFields(nil, late)
}

// end ends the answer when the handler has returned, and returns the code with which the stream ends.
func (w *writer) end() code {
	w.WriteHeader(http.StatusOK)
	x := w.exchange
	if late := w.trailers(); len(late) > 0 {
		x.mu.Lock()
		x.tail = late
		x.mu.Unlock()
	}
	if !w.begun {
		kept := w.kept()
		if w.length < 0 && hasBody(w.status) && !(w.isHead() && w.written == 0) {
			w.fields["Content-Length"] = []string{strconv.FormatInt(w.written, 10)}
		}
		w.prepare(kept, nil)
		if w.isHead() {
			kept = nil
		}
		x.mu.Lock()
		x.out = append(x.out, kept...)
		x.mu.Unlock()
		w.release()
	}
	if w.length >= 0 && w.written < w.length && hasBody(w.status) && !w.isHead() {
		return codeInternal // the client must not take it for the whole
	}
	return codeNone
}

// SetReadDeadline, SetWriteDeadline and EnableFullDuplex are for [http.ResponseController].
func (w *writer) SetReadDeadline(at time.Time) error {
	if b := w.exchange.body; b != nil {
		b.setDeadline(at)
	}
	return nil
}

func (w *writer) SetWriteDeadline(at time.Time) error {
	w.exchange.SetWriteDeadline(at)
	return nil
}

func (w *writer) EnableFullDuplex() error { return nil }
