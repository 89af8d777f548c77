package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// TestAccess_AQuotaIsWaitedFor, but nothing that is refused for good.
func TestAccess_AQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()
	over := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(httpapi.Body(isotone.CodeQuotaExceeded, "10 a minute"))
	}
	s := serveScript(t, over, over, members(front.MemberRecord{NodeID: 1, Role: "voter"}))
	if code, out, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "60s"); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	s = serveScript(t, func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(httpapi.Body(isotone.CodeQuotaExceeded, "10 a minute"))
	})
	if code, _, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "3s"); code != exitFailure || !strings.Contains(err, "quota_exceeded") {
		t.Errorf("exit code %d, %s", code, err)
	}
	forbidden := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(httpapi.Body(isotone.CodeForbidden, "ops lacks the role admin"))
	}
	s = serveScript(t, forbidden)
	if code, _, err := command("member", "list", "--endpoint", s.addr(), "--timeout", "60s"); code != exitFailure || !strings.Contains(err, "forbidden") || len(s.requests()) != 1 {
		t.Errorf("exit code %d, %s, %d requests", code, err, len(s.requests()))
	}
}
