package httpapi

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Fault is an error as an HTTP answer.
type Fault struct {
	// Status is the status code.
	Status  int
	Code    isotone.Code
	Message string
	// Leader is the address to ask instead, empty but for isotone.CodeNotLeader.
	Leader string
	// RetryAfter is in seconds; 0: none.
	RetryAfter int64

	challenge bool
}

// FaultOf converts err. An error outside the vocabulary is internal.
func FaultOf(err error) Fault {
	e := front.ErrorOf(err)
	if e.Code == isotone.CodeNotLeader && !fitsHeader(e.Leader) {
		// A redirect without a target would make the client loop.
		e = isotone.Errorf(isotone.CodeNoLeader, "%s", e.Message)
	}
	f := Fault{Status: statusOf(e.Code), Code: e.Code, Message: e.Message}
	switch {
	case e.Code == isotone.CodeNotLeader:
		f.Leader = e.Leader
	case e.Code == isotone.CodeUnauthorized:
		f.challenge = true
	case e.Code == isotone.CodeOverloaded || e.Code == isotone.CodeNoLeader || e.Code == isotone.CodeNoWorker ||
		e.Code == isotone.CodeQuotaExceeded || e.RetryAfter > 0:
		f.RetryAfter = retrySeconds(e.RetryAfter)
	}
	return f
}

// fitsHeader reports whether s can be part of a header field and of a URL: visible ASCII,
// not empty. Addresses come from the settings of other machines.
func fitsHeader(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

// statusOf returns the HTTP status of a code.
func statusOf(code isotone.Code) int {
	switch code {
	case isotone.CodeInvalidArgument:
		return 400
	case isotone.CodeUnauthorized:
		return 401
	case isotone.CodeForbidden:
		return 403
	case isotone.CodeNotFound:
		return 404
	case isotone.CodeNotLeader, isotone.CodeLocked, isotone.CodeSessionExpired, isotone.CodeNotBound, isotone.CodeNotHeld, isotone.CodeFenced:
		return 409
	case isotone.CodeQuotaExceeded:
		return 429
	case isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeClock, isotone.CodeNoWorker, isotone.CodeNoQuorum:
		return 503
	case isotone.CodeRegressed:
		return 412 // the floor is the precondition; 409 stands for a leader elsewhere
	case isotone.CodeWrongCluster:
		return 502 // of a proxy, in front of the wrong cluster
	case isotone.CodeDeadlineExceeded:
		return 504
	default:
		return 500
	}
}

// Reason returns the reason phrase of Status for HTTP/1.1.
func (f *Fault) Reason() string {
	switch f.Status {
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 409:
		return "Conflict"
	case 412:
		return "Precondition Failed"
	case 429:
		return "Too Many Requests"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	default:
		return "Internal Server Error"
	}
}

// Fields calls set for each header field specific to this fault. The scheme, the escaped
// path and the raw query are those of the request.
func (f *Fault) Fields(scheme, path, rawQuery string, set func(name, value string)) {
	if f.Leader != "" {
		set("Isotone-Leader", f.Leader)
		location := scheme + "://" + f.Leader + path
		if rawQuery != "" {
			location += "?" + rawQuery
		}
		set("Location", location)
	}
	if f.RetryAfter > 0 {
		set("Retry-After", strconv.FormatInt(f.RetryAfter, 10))
	}
	if f.challenge {
		set("Www-Authenticate", `Bearer, Basic realm="isotone"`) // required by RFC 9110 §11.6.1
	}
}

// Body returns the body of an error answer. It has Content-Type [ContentTypeJSON].
func Body(code isotone.Code, message string) []byte {
	type detail struct {
		Code    isotone.Code `json:"code"`
		Message string       `json:"message"`
	}
	body, err := json.Marshal(struct {
		Error detail `json:"error"`
	}{detail{code, message}})
	if err != nil {
		panic("httpapi: a fault of two strings does not encode: " + err.Error())
	}
	return body
}

// retrySeconds rounds up to whole seconds, at least 1: Retry-After has no fractions
// (RFC 9110 §10.2.3), and 0 would invite a stampede.
func retrySeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
