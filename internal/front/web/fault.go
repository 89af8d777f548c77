package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
)

// faultBody is the body of every error answer.
type faultBody struct {
	Error faultDetail `json:"error"`
}

type faultDetail struct {
	Code    isotone.Code `json:"code"`
	Message string       `json:"message"`
}

// statusOf returns the HTTP status of a code.
func statusOf(code isotone.Code) int {
	switch code {
	case isotone.CodeInvalidArgument:
		return http.StatusBadRequest
	case isotone.CodeUnauthorized:
		return http.StatusUnauthorized
	case isotone.CodeNotFound:
		return http.StatusNotFound
	case isotone.CodeNotLeader:
		return http.StatusConflict
	case isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeClock:
		return http.StatusServiceUnavailable
	case isotone.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// fail answers with err and returns its code. An error outside the vocabulary
// is internal.
func fail(w http.ResponseWriter, r *http.Request, err error) string {
	var e *isotone.Error
	switch {
	case !errors.As(err, &e):
		e = isotone.Errorf(isotone.CodeInternal, "%v", err)
	case e.Code == isotone.CodeNotLeader && e.Leader == "":
		// A redirect without a target would send the client round in circles.
		e = isotone.Errorf(isotone.CodeNoLeader, "%s", e.Message)
	}
	header := w.Header()
	switch {
	case e.Code == isotone.CodeNotLeader:
		header.Set("Isotone-Leader", e.Leader)
		header.Set("Location", location(r, e.Leader))
	case e.Code == isotone.CodeUnauthorized:
		header.Set("WWW-Authenticate", "Bearer") // required by RFC 9110 §11.6.1
	case e.Code == isotone.CodeOverloaded || e.Code == isotone.CodeNoLeader || e.RetryAfter > 0:
		header.Set("Retry-After", strconv.FormatInt(retrySeconds(e.RetryAfter), 10))
	}
	return answerFault(w, statusOf(e.Code), e.Code, e.Message)
}

func answerFault(w http.ResponseWriter, status int, code isotone.Code, message string) string {
	body, err := json.Marshal(faultBody{faultDetail{code, message}})
	if err != nil {
		panic("web: a fault of two strings does not encode: " + err.Error())
	}
	header := w.Header()
	header["Content-Type"] = contentTypeJSON
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return string(code)
}

// location is the request's own URL at another node.
func location(r *http.Request, leader string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	target := scheme + "://" + leader + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	return target
}

// retrySeconds rounds up to whole seconds, at least 1: Retry-After knows no
// fractions (RFC 9110 §10.2.3), and 0 would ask for a stampede.
func retrySeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
