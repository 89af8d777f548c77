package web

import (
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// fail answers with err and returns its code.
func fail(w http.ResponseWriter, r *http.Request, err error) string {
	if isGRPC(r) {
		return grpc.Fail(w, err)
	}
	f := httpapi.FaultOf(err)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	f.Fields(scheme, r.URL.EscapedPath(), r.URL.RawQuery, w.Header().Set)
	return answerFault(w, f.Status, f.Code, f.Message)
}

func answerFault(w http.ResponseWriter, status int, code isotone.Code, message string) string {
	body := httpapi.Body(code, message)
	header := w.Header()
	header["Content-Type"] = contentTypeJSON
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return string(code)
}

// Fail answers with err as requests on the client port are answered.
func Fail(w http.ResponseWriter, r *http.Request, err error) { fail(w, r, err) }
