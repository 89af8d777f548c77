package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// fault is an answer of the proxy's own.
type fault struct {
	status  int
	message string
}

func (f *fault) Error() string { return strconv.Itoa(f.status) + ": " + f.message }

// refuse returns the fault of a message that could be read in more than one way, or in
// none.
func refuse(message string) *fault { return &fault{status: 400, message: message} }

// faultOf returns the fault of a head that was refused.
func faultOf(err *head.Error) *fault { return &fault{err.Status, err.Message} }

// The faults that say something about the backends.
var (
	faultNoBackend  = &fault{503, "no backend is up"}
	faultBusy       = &fault{503, "too many requests are waiting for a backend"}
	faultGateway    = &fault{502, "the backend did not answer"}
	faultBroken     = &fault{502, "the backend broke off its answer"}
	faultStopped    = &fault{503, "the answer was cut: the proxy is shutting down"}
	faultAnswer     = &fault{502, "the backend's answer is not valid HTTP"}
	faultTimeout    = &fault{504, "the backend did not answer in time"}
	faultUpgrade    = &fault{501, "upgrades, such as to WebSocket, are not forwarded"}
	faultMethod     = &fault{501, "CONNECT and TRACE are not forwarded"}
	faultTooLong    = &fault{413, "the body is too long"}
	faultBodyTime   = &fault{408, "the body did not come in time"}
	faultOverloaded = &fault{503, "too many connections or requests here"}
)

// code returns the word for it in the one vocabulary of errors.
func (f *fault) code() isotone.Code {
	switch f.status {
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

func (f *fault) body() []byte { return httpapi.Body(f.code(), f.message) }

const retryAfter = "1"

// append appends the whole answer in HTTP/1.1, with fields, which are lines.
func (f *fault) append(b, fields []byte, last, head bool, now time.Time) []byte {
	body := f.body()
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(f.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(f.status)...)
	b = append(b, "\r\nContent-Type: "+httpapi.ContentTypeJSON+"\r\nCache-Control: "+httpapi.CacheControl+"\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = now.UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat)
	b = append(b, "\r\n"...)
	if f.status == 503 {
		b = append(b, "Retry-After: "+retryAfter+"\r\n"...)
	}
	b = append(b, fields...)
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if head {
		return b
	}
	return append(b, body...)
}
