package stats

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/requestid"
)

// codeOK is the code of a request that did not fail, as fronts have it.
const codeOK = "ok"

// codes has the codes that follow from a status.
var codes = map[int]isotone.Code{
	http.StatusUnauthorized:       isotone.CodeUnauthorized,
	http.StatusForbidden:          isotone.CodeForbidden,
	http.StatusNotFound:           isotone.CodeNotFound,
	http.StatusServiceUnavailable: isotone.CodeOverloaded,
	http.StatusGatewayTimeout:     isotone.CodeDeadlineExceeded,
}

// writer records the status and code of an answer.
type writer struct {
	http.ResponseWriter
	status int // 0: nothing yet
	code   string
}

// SetCode sets the code of the record, and of a writer around this one.
func (w *writer) SetCode(code string) {
	w.code = code
	if outer, ok := w.ResponseWriter.(coder); ok {
		outer.SetCode(code)
	}
}

// begin records the status of the answer, before its fields are sent.
func (w *writer) begin(status int) {
	if w.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return // a second one, or an interim one
	}
	w.status = status
	if header := w.Header(); header[canonicalID] != nil {
		delete(header, requestid.FieldID) // the handler has set another, in the canonical spelling
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, which lets the server send a file without reading it.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.begin(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker, as far as the server does.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return nc, rw, err
}

// Unwrap lets http.NewResponseController reach what is below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// codeOf returns the code from the handler, or the code for the status.
func (w *writer) codeOf() string {
	if w.code != "" {
		return w.code
	}
	return codeFor(w.status)
}

// codeFor returns the code for a status; 0 is an answer that was cut.
func codeFor(status int) string {
	code, known := codes[status]
	switch {
	case known:
		return string(code)
	case status == 0:
		return string(isotone.CodeInternal)
	case status < http.StatusBadRequest:
		return codeOK
	case status < http.StatusInternalServerError:
		return string(isotone.CodeInvalidArgument)
	}
	return string(isotone.CodeInternal)
}
