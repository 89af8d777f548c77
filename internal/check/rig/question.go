package rig

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Question is a request, and the status of its answer.
type Question struct {
	Path, Authorization string
	Status              int
}

// Ask returns a question.
func Ask(path, authorization string, status int) Question {
	return Question{path, authorization, status}
}

// Check checks an answer to q.
func (q *Question) Check(t *testing.T, status int, header http.Header, body string) {
	t.Helper()
	code := map[int]string{401: "unauthorized", 403: "forbidden"}[q.Status]
	if status != q.Status || code != "" && !strings.Contains(body, `"code":"`+code+`"`) || strings.Contains(body, Secret) {
		t.Errorf("%s with %q: %d, want %d; %.200s", q.Path, q.Authorization, status, q.Status, body)
	}
	if challenge := header.Get("WWW-Authenticate"); (challenge != "") != (q.Status == 401) {
		t.Errorf("%s with %q: %d with the challenge %q", q.Path, q.Authorization, status, challenge)
	}
}

// AskBy sends q over a transport of a version of HTTP, and checks the answer.
func (q *Question) AskBy(t *testing.T, via http.RoundTripper, major int, base string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+q.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Authorization != "" {
		r.Header.Set("Authorization", q.Authorization)
	}
	answer, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.ProtoMajor != major {
		t.Fatalf("%v, %s", err, answer.Proto)
	}
	q.Check(t, answer.StatusCode, answer.Header, string(body))
}
