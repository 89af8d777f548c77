// Package admin serves the HTTP API of operators, below /admin/. Answers and errors are JSON
// in the form of internal/front/httpapi. What only the leader can do, other nodes pass on to it
// (internal/front/web/carry.go), or answer with not_leader and the leader's address.
//
//	GET  /admin/members        the members (front.MemberList)
//	POST /admin/members        a front.MemberChange; answers as GET when it is applied
//	GET  /admin/join?node=ID   how a node with an empty data directory joins (front.Joining); see [ProofField]
//	POST /admin/leader         {"to": ID}; 0 or nothing: any other voter
//	GET  /admin/workers        the worker leases (front.WorkerList)
//	POST /admin/workers        a [WorkerAction]; answers as GET when it is applied
//	GET  /admin/locks          locks that are held (front.LockList), by prefix=
//	POST /admin/locks          a [LockAction]; answers a front.LockBroken
//	GET  /admin/frontier       what keeps the frontier of group= from going on (front.BlockerList)
//	POST /admin/floor          {"time": "TIMESTAMP", "force": false}
//	GET  /admin/timelines      timelines (front.TimelineList), by prefix=, after= and limit=, or one by name=
//	POST /admin/timelines      a front.TimelineChange; answers a front.TimelineChanged when it is applied
//	GET  /admin/timelines/top  those that this node serves most (front.BusyTimelines), by limit=; each node answers for itself
//	GET  /admin/groups         the groups of timelines (front.GroupList)
//	GET  /admin/security       who may reach this node (front.Security); each node answers for itself
//	GET  /admin/backup         a backup, as a file; see docs/backup.md
//
// A POST must have Content-Type application/json: browsers do not send that across sites
// without asking.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// Prefix is where the paths of this API begin.
const Prefix = "/admin/"

// ProofField is the field of a request for /admin/join that has the proof of [front.JoinMessage].
const ProofField = "Isotone-Proof"

const (
	// bodyMax bounds the body of a request, in bytes.
	bodyMax = 64 << 10
	// waitMax bounds how long a request waits for its effect. The client, which waits for 10 s,
	// shall get the answer that it was too long.
	waitMax = 8 * time.Second
)

// Config configures a [Handler].
type Config struct {
	// Operator is required.
	Operator front.Operator
	// Timelines is that of the same node; nil: there are no such paths.
	Timelines front.Timelines
	// Security describes the node, as front.Security and more; nil: there is no such path. Safe for concurrent use.
	Security func() any
	// Raised, if not nil, is told of each floor that has moved time, with the context of the request.
	Raised func(context.Context, front.FloorRaised)
	// RaisedTimelines, if not nil, is told of timelines whose time was moved ahead of the clock, to a unix nanosecond.
	RaisedTimelines func(ctx context.Context, names []string, to uint64)
}

// Handler serves the API. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	routes map[string]route
}

// route has the functions of one path; nil for a method that it does not have.
type route struct {
	get, post func(r *http.Request, body []byte) (any, error)
}

// New returns a handler.
func New(cfg Config) *Handler {
	h := &Handler{cfg: cfg}
	h.routes = map[string]route{
		"members":  {h.members, h.changeMember},
		"join":     {h.join, nil},
		"leader":   {nil, h.transfer},
		"workers":  {h.workers, h.revokeWorker},
		"locks":    {h.locks, h.breakLock},
		"frontier": {h.blockers, nil},
		"floor":    {nil, h.raiseFloor},
		"backup":   {h.backup, nil},
	}
	if cfg.Timelines != nil {
		h.routes["timelines"], h.routes["groups"] = route{h.timelines, h.changeTimelines}, route{h.groups, nil}
		h.routes["timelines/top"] = route{h.busyTimelines, nil}
	}
	if cfg.Security != nil {
		h.routes["security"] = route{func(*http.Request, []byte) (any, error) { return cfg.Security(), nil }, nil}
	}
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.Serve(w, r) }

// Serve answers one request and returns "ok" or the code of the error.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request) string {
	body, err := h.serve(w, r)
	if err != nil {
		return fail(w, r, err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fail(w, r, err)
	}
	write(w, http.StatusOK, text)
	return httpapi.CodeOK
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (any, error) {
	path := r.URL.Path
	if len(path) < len(Prefix) {
		path = Prefix
	}
	route, ok := h.routes[path[len(Prefix):]]
	if !ok {
		return nil, isotone.Errorf(isotone.CodeNotFound, "no such path: %.100q", r.URL.Path)
	}
	answer, allow := route.get, "GET"
	switch {
	case route.get == nil:
		allow = "POST"
	case route.post != nil:
		allow = "GET, POST"
	}
	if r.Method == http.MethodPost {
		answer = route.post
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost || answer == nil {
		w.Header().Set("Allow", allow)
		return nil, errMethod
	}
	var body []byte // of a POST; that of a GET is ignored
	if r.Method == http.MethodPost {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax)); err != nil {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "the body cannot be read in time, or has more than %d bytes", bodyMax)
		}
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != httpapi.ContentTypeJSON {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "Content-Type: want %s", httpapi.ContentTypeJSON)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitMax)
	defer cancel()
	return answer(r.WithContext(ctx), body)
}

var errMethod = errors.New("method not allowed here")

// decode decodes a body; an empty one changes nothing. A field that this version does not know
// is an error: the request would do something else than was asked for.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.Decode(new(json.RawMessage)) != io.EOF {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return isotone.Errorf(isotone.CodeInvalidArgument, "the body is not the JSON object that this path takes: %v", err)
	}
	return nil
}

func (h *Handler) members(*http.Request, []byte) (any, error) { return h.cfg.Operator.Members() }

func (h *Handler) changeMember(r *http.Request, body []byte) (any, error) {
	var c front.MemberChange
	if err := decode(body, &c); err != nil {
		return nil, err
	}
	for _, addr := range []string{c.PeerAddr, c.ClientAddr} {
		if addr != "" && (!address.Valid(addr, 1) || address.Unspecified(addr)) {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%.100q: want host:port, at which others reach the node, such as 10.0.0.1:60001, at most %d bytes", addr, address.SizeMax)
		}
	}
	if err := h.cfg.Operator.ChangeMember(r.Context(), c); err != nil {
		return nil, err
	}
	return h.cfg.Operator.Members()
}

func (h *Handler) join(r *http.Request, _ []byte) (any, error) {
	node, err := strconv.ParseUint(r.URL.Query().Get("node"), 10, 64)
	if err != nil || node == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "node: want the ID of a node")
	}
	incarnation := uint64(0)
	if text := r.URL.Query().Get("incarnation"); text != "" {
		if incarnation, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "incarnation: want a number")
		}
	}
	return h.cfg.Operator.Joining(node, incarnation, r.Header.Get(ProofField))
}

func (h *Handler) backup(r *http.Request, _ []byte) (any, error) {
	b, err := h.cfg.Operator.Backup(r.Context())
	return json.RawMessage(b), err
}

// Leader is the body of POST /admin/leader.
type Leader struct {
	To uint64 `json:"to,omitempty"`
}

func (h *Handler) transfer(r *http.Request, body []byte) (any, error) {
	var to Leader
	if err := decode(body, &to); err != nil {
		return nil, err
	}
	if err := h.cfg.Operator.Transfer(r.Context(), to.To); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// RevokeWorker is the action of a WorkerAction.
const RevokeWorker = "revoke"

// WorkerAction is the body of POST /admin/workers.
type WorkerAction struct {
	Action string `json:"action"`
	Worker *int   `json:"worker"`
	// Start, if not 0, is that of the lease which is meant, in unix milliseconds. A request that
	// has it can be repeated: it never revokes the lease that came after.
	Start uint64 `json:"start,string,omitempty"`
}

func (h *Handler) workers(*http.Request, []byte) (any, error) { return h.cfg.Operator.Workers() }

func (h *Handler) revokeWorker(r *http.Request, body []byte) (any, error) {
	var a WorkerAction
	if err := decode(body, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Action != RevokeWorker:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "action: want %s, not %.32q", RevokeWorker, a.Action)
	case a.Worker == nil || *a.Worker < 0:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "worker: want the number of a worker")
	}
	if err := h.cfg.Operator.RevokeWorker(r.Context(), *a.Worker, a.Start); err != nil {
		return nil, err
	}
	return h.cfg.Operator.Workers()
}

// Floor is the body of POST /admin/floor.
type Floor struct {
	// Time is a timestamp or a time, in any form that oracle.ParseFloor takes.
	Time  string `json:"time"`
	Force bool   `json:"force,omitempty"`
}

func (h *Handler) raiseFloor(r *http.Request, body []byte) (any, error) {
	var f Floor
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	a, err := h.cfg.Operator.RaiseFloor(r.Context(), f.Time, f.Force)
	if err != nil {
		return nil, err
	}
	if a.Raised && h.cfg.Raised != nil {
		h.cfg.Raised(r.Context(), a)
	}
	return a, nil
}

func fail(w http.ResponseWriter, r *http.Request, err error) string {
	if errors.Is(err, errMethod) {
		write(w, http.StatusMethodNotAllowed, httpapi.Body(isotone.CodeInvalidArgument, "method not allowed here; use "+w.Header().Get("Allow")))
		return string(isotone.CodeInvalidArgument)
	}
	f := httpapi.FaultOf(err)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	f.Fields(scheme, r.URL.EscapedPath(), r.URL.RawQuery, w.Header().Set)
	write(w, f.Status, httpapi.Body(f.Code, f.Message))
	return string(f.Code)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
