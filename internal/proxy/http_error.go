package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// httpError is an answer of the proxy itself to a request that it does not forward.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return strconv.Itoa(e.status) + ": " + e.message }

// refuse returns the error for a message that can be read in more than one way, or in none.
func refuse(message string) *httpError { return &httpError{status: 400, message: message} }

// errorOf returns the error for a head that was refused.
func errorOf(err *head.Error) *httpError { return &httpError{err.Status, err.Message} }

// Errors with a text that does not depend on the request.
var (
	errNoBackend     = &httpError{503, "no backend is up"}
	errBusy          = &httpError{503, "too many requests are waiting for a backend"}
	errGateway       = &httpError{502, "the backend did not answer"}
	errBroken        = &httpError{502, "the backend ended its answer early"}
	errCutOff        = &httpError{503, "the answer was cut off: the proxy is shutting down"}
	errInvalidAnswer = &httpError{502, "the backend's answer is not valid HTTP"}
	errTimeout       = &httpError{504, "the backend did not answer in time"}
	errUpgrade       = &httpError{501, "upgrades, such as to WebSocket, are not forwarded"}
	errMethod        = &httpError{501, "CONNECT and TRACE are not forwarded"}
	errBodyTooLong   = &httpError{413, "the body is too long"}
	errBodyTimeout   = &httpError{408, "the body did not arrive in time"}
	errTwoLengths    = refuse("both Content-Length and Transfer-Encoding")
	errOverloaded    = &httpError{503, "too many connections or requests at the proxy"}
)

// code returns its code in the vocabulary that all protocols share.
func (e *httpError) code() isotone.Code {
	switch e.status {
	case 502, 500:
		return isotone.CodeInternal
	case 503:
		return isotone.CodeOverloaded
	case 504, 408:
		return isotone.CodeDeadlineExceeded
	default:
		return isotone.CodeInvalidArgument
	}
}

func (e *httpError) body() []byte { return httpapi.Body(e.code(), e.message) }

const retryAfter = "1"

// append appends the whole answer as HTTP/1.1. fields are further header lines, closeAfter says
// that the connection ends with the answer, toHead that the request was a HEAD.
func (e *httpError) append(b, fields []byte, closeAfter, toHead bool, now time.Time) []byte {
	body := e.body()
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(e.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(e.status)...)
	b = append(b, "\r\nContent-Type: "+httpapi.ContentTypeJSON+"\r\nCache-Control: "+httpapi.CacheControl+"\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = now.UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat)
	b = append(b, "\r\n"...)
	if e.status == 503 {
		b = append(b, "Retry-After: "+retryAfter+"\r\n"...)
	}
	b = append(b, fields...)
	if closeAfter {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if toHead {
		return b
	}
	return append(b, body...)
}
