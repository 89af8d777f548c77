package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// carriedPaths are what only the leader answers.
var carriedPaths = []string{
	adminPrefix + "members", adminPrefix + "leader", adminPrefix + "workers", adminPrefix + "locks", adminPrefix + "frontier", adminPrefix + "floor", timelinesPath, adminPrefix + "groups",
	adminPrefix + "backup", upgradePath,
}

const (
	// carriedBodyMax bounds the body of a request that is passed on, as in package admin.
	carriedBodyMax = 64 << 10
	// carryTimeout is longer than the leader takes at most.
	carryTimeout = 9 * time.Second
)

// carriedKey marks the context of a request that another member has passed on to this node.
type carriedKey struct{}

// carries reports whether a request is passed on to the leader. One that was passed on already is not: its member asks again.
func (h *handler) carries(r *http.Request) bool {
	if h.carrier == nil || r.Context().Value(carriedKey{}) != nil || !slices.Contains(carriedPaths, r.URL.Path) {
		return false
	}
	s := h.backend.Status()
	return s.Leader != 0 && s.Leader != s.NodeID
}

// carry passes a request of an operator on to the leader, and answers with what that says.
func (h *handler) carry(w http.ResponseWriter, r *http.Request) string {
	var body []byte
	if r.Method == http.MethodPost {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, carriedBodyMax)); err != nil {
			return fail(w, r, isotone.Errorf(isotone.CodeInvalidArgument, "the body cannot be read in time, or has more than %d bytes", carriedBodyMax))
		}
		if !isJSON(r) {
			return fail(w, r, errNotJSON)
		}
	}
	s := sessionOf(r.Context())
	who := s.Name()
	if who == "" {
		who = s.Addr().String()
	}
	ctx, cancel := context.WithTimeout(r.Context(), carryTimeout)
	defer cancel()
	status, answer, err := h.carrier.Carry(ctx, front.Carried{
		Who: who, Method: r.Method, Target: r.URL.RequestURI(), Body: body,
	})
	if err != nil {
		return fail(w, r, err)
	}
	w.Header()["Content-Type"] = contentTypeJSON
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer)
	if status == http.StatusOK {
		return httpapi.CodeOK
	}
	var told struct{ Error struct{ Code string } }
	if json.Unmarshal(answer, &told) != nil || told.Error.Code == "" {
		return string(isotone.CodeInternal)
	}
	return told.Error.Code
}

// Carried answers a request of an operator that another member has passed on.
func (s *Server) Carried(ctx context.Context, c front.Carried) (status int, body []byte) {
	ctx = context.WithValue(WithOperator(ctx, c.Who), carriedKey{}, true)
	a := &answer{header: http.Header{}, status: http.StatusOK}
	r, err := http.NewRequestWithContext(ctx, c.Method, "http://member"+c.Target, bytes.NewReader(c.Body))
	if err != nil || !slices.Contains(carriedPaths, r.URL.Path) {
		return http.StatusBadRequest, httpapi.Body(isotone.CodeInvalidArgument, "another member passed on what the leader does not answer")
	}
	r.Header["Content-Type"] = contentTypeJSON
	defer func() {
		if recover() != nil { // as net/http does; the handler has logged it
			status, body = http.StatusInternalServerError, httpapi.Body(isotone.CodeInternal, "the request failed; the log of the leader says how")
		}
	}()
	s.handler.ServeHTTP(a, r)
	return a.status, a.body.Bytes()
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
