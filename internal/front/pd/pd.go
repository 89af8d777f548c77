// Package pd is the front for clients of PD, TiKV's placement driver, that need timestamps only: the methods GetMembers,
// GetClusterInfo and Tso of the gRPC service pdpb.PD, as PD 8.1 has them, and the health check. With keyspace groups it is PD's
// service for timestamps as well: FindGroupByKeyspaceID and Tso of tsopb.TSO. All other methods answer UNIMPLEMENTED.
//
// A timestamp of PD is a unix millisecond (physical) and a counter of 18 bits (logical), which is the layout of
// [isotone.Timestamp64]. One request asks for a count of them, and the answer names the largest. The client counts down from it
// within its millisecond, so all of a count lie in one millisecond; see batch.go.
//
// It owns the messages and methods. Tso is answered in the loop, by internal/front/http2; the others by a [http.Handler].
//
// Sources: pdpb.proto and tsopb.proto in github.com/pingcap/kvproto, and the server and the Go client in github.com/tikv/pd.
package pd

import (
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// Protocol is the name for observers.
const Protocol = "pd"

const (
	// readTimeout bounds the wait for the request of a unary call.
	readTimeout = 10 * time.Second
	// unaryMax bounds the unary calls of all clients that wait for their request: each has a buffer of 8 KiB.
	unaryMax = 4096
)

// Config configures a [Server]. Status is required.
type Config struct {
	// Status returns the status of the node. It is safe for concurrent use.
	Status func() *front.Status
	// Port is where this node serves PD's protocol, and ClientPort that of its client address. The ports of other members
	// are as far apart.
	Port, ClientPort int
	// Mode is the read mode of all requests.
	Mode isotone.ReadMode
	// Groups has the keyspace groups; nil: clients are not told of any. Backends implement front.TimelineTable then, each in its loop.
	Groups *Groups
	// Timelines is required with Groups, and where users are bound to timelines. It is safe for concurrent use.
	Timelines front.TimelineTable
	// Access decides who may have timestamps: by the address of a client, and by its certificate, since PD has no credentials.
	// Nil: everybody.
	Access *access.Control
	// Observe, if not nil, is told of requests that were answered: their number, and an isotone.Code or "ok".
	Observe func(protocol, code string, requests int, wall time.Duration)
}

// Server answers calls. It is safe for concurrent use.
type Server struct {
	cfg   Config
	unary atomic.Int64
}

// New returns a server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// call is a call with one request: within TLS or not, and of a client that is bound to a timeline, or to none, "".
type call struct {
	secure  bool
	bound   string
	request []byte
}

// method answers a call. As in PD, a caller need not know the cluster's ID, which it learns here.
type method func(s *Server, c call) (message []byte, failure error)

var (
	unary = map[string]method{
		"/pdpb.PD/GetMembers":          (*Server).members,
		"/pdpb.PD/GetClusterInfo":      (*Server).clusterInfo,
		"/grpc.health.v1.Health/Check": (*Server).health,
	}
	// unaryOfGroups are there with keyspace groups.
	unaryOfGroups = map[string]method{
		"/tsopb.TSO/FindGroupByKeyspaceID": (*Server).findGroup,
		"/tsopb.TSO/GetMinTS":              (*Server).minTS,
		"/pdpb.PD/GetMinTS":                (*Server).minTS,
	}
)

// ServeHTTP answers all calls but Tso.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !grpc.IsContentType(r.Header.Get("Content-Type")) {
		http.Error(w, "this port serves the timestamps of PD's protocol, over gRPC; HTTP_PORT serves everything else", http.StatusUnsupportedMediaType)
		return
	}
	began := time.Now()
	answer := unary[r.URL.Path]
	if answer == nil && s.cfg.Groups != nil {
		answer = unaryOfGroups[r.URL.Path]
	}
	if answer == nil {
		err := isotone.Errorf(isotone.CodeNotFound,
			"%.200s: this is Isotone, which has timestamps only: of pdpb.PD it serves GetMembers, GetClusterInfo and Tso", r.URL.Path)
		s.observe(err, 1, began)
		grpc.Fail(w, err)
		return
	}
	c, err := s.admit(w, r)
	if err != nil {
		s.observe(err, 1, began)
		grpc.Fail(w, err)
		return
	}
	message, failure := answer(s, c)
	s.observe(failure, 1, began)
	grpc.Answer(w, message)
}

// admit reads the request of a unary call, or returns why it is not answered. A client that does not stop to make such calls loses
// its connection, as on the client port.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (c call, err error) {
	session := s.cfg.Access.Request(httpapi.AddrOf(r), httpapi.ChainsOf(r), r.TLS != nil)
	err = session.Require(access.Timestamps)
	c.secure = r.TLS != nil
	c.bound, _ = session.Timeline("") // of Tso, which is refused where that fails
	refused := err != nil
	if !refused {
		c.request, err = s.read(w, r)
		refused = r.Context().Err() != nil // the client has taken it back
	}
	if refused && session.Refused() {
		w.Header().Set("Connection", "close")
	}
	return c, err
}

// read reads the request of a unary call.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	defer s.unary.Add(-1)
	if s.unary.Add(1) > unaryMax {
		return nil, isotone.ErrOverloaded
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
	return grpc.ReadOnly(r.Body)
}

func (s *Server) observe(err error, requests int, began time.Time) {
	if s.cfg.Observe == nil {
		return
	}
	code := httpapi.CodeOK
	if err != nil {
		code = string(front.ErrorOf(err).Code)
	}
	s.cfg.Observe(Protocol, code, requests, time.Since(began))
}

var (
	// errUnknownCluster: clients must not learn that the cluster ID is 0, which they would keep.
	errUnknownCluster = isotone.Errorf(isotone.CodeNoLeader, "this node does not know the ID of its cluster yet")
	errNoLeader       = isotone.Errorf(isotone.CodeNoLeader, "no leader is known at the moment")
)

// members says which member leads: to clients that are bound to a timeline, the owner of that, as it answers Tso. After a failure, clients
// ask the next one.
func (s *Server) members(c call) ([]byte, error) {
	status := s.cfg.Status()
	list, leader := s.servers(status, c.secure, s.leads(status, c.bound))
	failure := error(nil)
	switch {
	case status.ClusterID == 0:
		failure = errUnknownCluster
	case leader < 0:
		failure = errNoLeader
	}
	return AppendMembers(nil, status.ClusterID, list, leader, failure), failure
}

// leads returns the node that serves the default order of a client, or what that is bound to; 0: none.
func (s *Server) leads(status *front.Status, bound string) uint64 {
	if bound != "" && s.cfg.Timelines != nil {
		state, _ := s.cfg.Timelines.Timeline(bound)
		return state.NodeID
	}
	return status.Leader
}

// servers returns the voters whose addresses are known, and the place of a node among them, or -1. A learner may own timelines, and then it is
// among them as well.
func (s *Server) servers(status *front.Status, secure bool, node uint64) (list []Member, at int) {
	at = -1
	for _, m := range status.Members {
		url := s.url(m.Addr, secure)
		if url == "" || m.Learner && m.NodeID != node {
			continue
		}
		if m.NodeID == node {
			at = len(list)
		}
		list = append(list, Member{"isotone-" + strconv.FormatUint(m.NodeID, 10), m.NodeID, url})
	}
	return list, at
}

// url returns where the member with that client address serves PD's protocol; "" if that is not known.
func (s *Server) url(client string, secure bool) string {
	host, text, err := net.SplitHostPort(client)
	port, _ := strconv.Atoi(text)
	port += s.cfg.Port - s.cfg.ClientPort
	if err != nil || port < 1 || port > 1<<16-1 {
		return ""
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

func (s *Server) clusterInfo(c call) ([]byte, error) {
	status, urls, failure := s.cfg.Status(), []string(nil), error(nil)
	if status.ClusterID == 0 {
		failure = errUnknownCluster
	}
	if s.cfg.Groups != nil {
		list, _ := s.servers(status, c.secure, 0)
		urls = urlsOf(list)
	}
	return AppendClusterInfo(nil, status.ClusterID, urls, failure), failure
}

// health is a grpc.health.v1.HealthCheckResponse. Clients of PD ask every second.
func (s *Server) health(call) ([]byte, error) {
	const serving, notServing = 1, 2
	if status := s.cfg.Status(); status.NotReadyTimestamps != "" || status.Draining {
		return grpc.AppendVarint(nil, 1, notServing), nil
	}
	return grpc.AppendVarint(nil, 1, serving), nil
}
