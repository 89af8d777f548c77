package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
)

// bodyDrainTime bounds how long a body is read, wanted or not, before the connection or the stream is closed.
// Without it net/http would wait for a slow one forever.
const bodyDrainTime = time.Second

// Constant header values are shared by all answers: no server changes them, and appending
// to a full slice copies it.
var (
	contentTypeJSON   = []string{httpapi.ContentTypeJSON}
	contentTypeText   = []string{httpapi.ContentTypeText}
	contentTypeBinary = []string{httpapi.ContentTypeBinary}
	noStore           = []string{httpapi.CacheControl}
	connectionClose   = []string{"close"}
	connectionKeep    = []string{"keep-alive"}
)

// handler answers requests; every server shares one. Its configuration does not
// change once requests run.
type handler struct {
	backend  front.Backend
	ids      front.IDs
	clock    front.Clock
	stampers sync.Pool // of *front.Stamper
	live     http.Handler
	page     http.Handler
	metrics  http.Handler
	operator front.Operator
	carrier  front.Carrier
	access   *access.Control
	drain    http.Handler // nil: none
	grpc     *grpc.Server
	admin    func(http.ResponseWriter, *http.Request) string
	mode     isotone.ReadMode
	limits   Limits
	observe  func(protocol, code string, wall time.Duration)
	log      *slog.Logger
	altSvc   atomic.Pointer[[]string] // nil without HTTP/3; the admin port serves before it is known
	cluster  atomic.Pointer[clusterField]
	active   atomic.Int64
	// largeIDs counts the concurrent answers with many ids.
	largeIDs atomic.Int64
	// clockWaits counts the requests that wait for the cluster clock.
	clockWaits atomic.Int64
	// sessions is nil if there are none. sessionsWaiting counts the requests and streams that wait for locks and frontiers.
	sessions        *sessionTable
	sessionsWaiting atomic.Int64
	stopping        chan struct{} // closed by endWaits
	endWaits        func()        // may be called again
}

// clusterField is the header field with the cluster's ID.
type clusterField struct {
	id    uint64
	value []string
}

func newHandler(cfg Config) *handler {
	h := &handler{
		backend: cfg.Backend,
		ids:     cfg.IDs,
		clock:   cfg.Clock,
		live:    cfg.Live,
		page:    cfg.Page,
		metrics: cfg.Metrics,

		operator: cfg.Operator,
		carrier:  cfg.Carrier,
		access:   cfg.Access,
		admin:    cfg.Admin,
		mode:     cfg.Mode,
		limits:   cfg.Limits,
		stopping: make(chan struct{}),
		observe:  cfg.Observe,
		log:      cfg.Log,
	}
	h.endWaits = sync.OnceFunc(func() { close(h.stopping) })
	h.stampers.New = func() any { return front.NewStamper(cfg.Clock) }
	h.grpc = newGRPC(h, &cfg)
	if cfg.Sessions != nil {
		h.sessions = newSessionTable(cfg.Sessions)
	}
	if cfg.Drain != nil {
		h.drain = drainHandler(cfg.Drain)
	}
	return h
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	active := h.active.Add(1)
	code := string(isotone.CodeInternal) // unless serve returns
	defer func() {
		h.active.Add(-1)
		if h.observe != nil && code != notObserved {
			h.observe(stats.Protocol(r), code, time.Since(start))
		}
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				h.log.Error("panic in a request", "panic", p, "stack", string(debug.Stack()), "request_id", requestID(r))
			}
			panic(http.ErrAbortHandler) // the servers cut the connection without logging
		}
	}()
	h.prepare(w, r, start)
	switch {
	case isLoose(r):
		w.Header()["Connection"] = connectionClose
		code = fail(w, r, errLoose)
	case active > int64(h.limits.RequestsMax) && !isExempt(r):
		code = fail(w, r, isotone.ErrOverloaded)
	default:
		code = h.serve(w, r)
	}
	if told, ok := w.(interface{ SetCode(string) }); ok {
		told.SetCode(code)
	}
}

// fieldID is the field of the request ID as net/http spells it.
var fieldID = http.CanonicalHeaderKey(requestid.FieldID)

// requestID returns the request ID of a request, or "" if it has no valid one. The fast
// path ignores it; to echo X-Request-ID there, set REQUEST_STATS.
func requestID(r *http.Request) string {
	if ids := r.Header[fieldID]; len(ids) == 1 && requestid.ValidID(ids[0]) {
		return ids[0]
	}
	return ""
}

// prepare sets the header fields of every answer, whatever the path.
func (h *handler) prepare(w http.ResponseWriter, r *http.Request, now time.Time) {
	header := w.Header()
	header["Cache-Control"] = noStore
	draining := h.backend.Status().Draining
	if value := h.altSvc.Load(); value != nil && r.TLS != nil && !draining {
		header["Alt-Svc"] = *value
	}
	if draining && r.ProtoMajor < 3 {
		header["Connection"] = connectionClose // net/http makes GOAWAY of it in HTTP/2
	}
	if !isLive(r.URL.Path) {
		h.tellCluster(header)
	}
	if id := requestID(r); id != "" {
		header[requestid.FieldID] = []string{id}
	}
	switch r.ProtoMajor {
	case 1:
		if r.ProtoMinor == 0 && !draining {
			if survives(r) {
				header["Connection"] = connectionKeep
			} else {
				header["Connection"] = connectionClose
			}
		}
		if hasBody(r) {
			header["Connection"] = connectionClose
			_ = http.NewResponseController(w).SetReadDeadline(now.Add(bodyDrainTime))
		}
	case 2:
		if hasBody(r) {
			_ = http.NewResponseController(w).SetReadDeadline(now.Add(bodyDrainTime))
		}
	case 3:
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(now.Add(bodyDrainTime))
		// net/http does this for the other protocols.
		_ = control.SetWriteDeadline(now.Add(h.limits.WriteTimeout))
	}
}

// isExempt reports whether RequestsMax does not apply to a request: to health checks, as a supervisor ends a process that fails them,
// and to operators. None of these requests waits for the cluster unless its client is an operator.
func isExempt(r *http.Request) bool {
	if _, ok := r.Context().Value(operatorKey{}).(string); ok {
		return true
	}
	row := rowOf(r.URL.Path)
	return row != nil && row.exempt
}

// tellCluster sets the field with the cluster's ID, once the node knows it.
func (h *handler) tellCluster(header http.Header) {
	id := h.backend.Status().ClusterID
	if id == 0 {
		return
	}
	field := h.cluster.Load()
	if field == nil || field.id != id {
		field = &clusterField{id, []string{isotone.ClusterID(id).String()}}
		h.cluster.Store(field)
	}
	header[httpapi.FieldCluster] = field.value
}

// hasBody reports whether a body is announced. In HTTP/3 a length of -1 means nothing: the
// end of the stream ends the request, and has not been seen yet.
func hasBody(r *http.Request) bool {
	return r.ContentLength > 0 || len(r.TransferEncoding) > 0 ||
		r.ContentLength < 0 && r.ProtoMajor < 3
}

// serve answers who may ask, and returns the code for Observe.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) string {
	if h.takenBack(w, r) {
		return string(errTakenBack.Code)
	}
	r, code := h.authorize(w, r)
	if code != "" {
		return code
	}
	r, err := restrict(w, r)
	if err != nil {
		return refuse(w, r, sessionOf(r.Context()), err)
	}
	if h.carries(r) {
		code = h.carry(w, r)
	} else {
		code = h.route(w, r)
	}
	if isAction(r) {
		sessionOf(r.Context()).Did(r.Method+" "+r.URL.Path, code)
	}
	return code
}

// route answers by path and returns the code for Observe.
func (h *handler) route(w http.ResponseWriter, r *http.Request) string {
	row := rowOf(r.URL.Path)
	if row == nil || row.has != nil && !row.has(h) {
		return fail(w, r, isotone.Errorf(isotone.CodeNotFound, "no such path: %.100q", r.URL.Path))
	}
	if !row.reads {
		return row.answer(h, w, r)
	}
	allow := "GET, HEAD"
	if row.noHead {
		allow = "GET"
	}
	if r.Method != http.MethodGet && (r.Method != http.MethodHead || row.noHead) {
		w.Header().Set("Allow", allow)
		return answerFault(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use "+allow)
	}
	if hasBody(r) {
		return fail(w, r, isotone.Errorf(isotone.CodeInvalidArgument, "a %s request here has no body", r.Method))
	}
	return row.answer(h, w, r)
}

func (h *handler) serveMetrics(w http.ResponseWriter, r *http.Request) string {
	h.metrics.ServeHTTP(w, r)
	return httpapi.CodeOK
}

// membership is the body of /members.
type membership struct {
	// ClusterID is missing while the node does not know it.
	ClusterID string `json:"clusterID,omitempty"`
	// Leader is null while no leader can be addressed.
	Leader  *leader  `json:"leader"`
	Members []member `json:"members"`
	// NodeID, Role and Term are those of this node.
	NodeID uint64 `json:"nodeID"`
	Role   string `json:"role"`
	Term   uint64 `json:"term"`
}

type leader struct {
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr"` // client address
}

type member struct {
	NodeID   uint64 `json:"nodeID"`
	Addr     string `json:"addr"` // client address; empty until known
	PeerAddr string `json:"peerAddr"`
	Learner  bool   `json:"learner"`
}

func (h *handler) members(w http.ResponseWriter, r *http.Request) string {
	status := h.backend.Status()
	m := membership{
		Members: make([]member, 0, len(status.Members)),
		NodeID:  status.NodeID,
		Role:    status.Role,
		Term:    status.Term,
	}
	if status.ClusterID != 0 {
		m.ClusterID = isotone.ClusterID(status.ClusterID).String()
	}
	if status.Leader != 0 && status.LeaderAddr != "" {
		m.Leader = &leader{NodeID: status.Leader, Addr: status.LeaderAddr}
	}
	for _, each := range status.Members {
		m.Members = append(m.Members, member{NodeID: each.NodeID, Addr: each.Addr, PeerAddr: each.PeerAddr, Learner: each.Learner})
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fail(w, r, err)
	}
	w.Header()["Content-Type"] = contentTypeJSON
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return httpapi.CodeOK
}
