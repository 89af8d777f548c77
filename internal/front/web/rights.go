package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// adminPrefix is where the paths of operators begin.
const adminPrefix = "/admin/"

// Right says what a request for a path needs.
type Right struct {
	// Path is exact, or ends with a slash and stands for everything below it that has no row of its own.
	Path string
	// Needs are the roles; 0 with Any: any role, 0 without: nothing. Or is a role that does as well, within the user's timelines.
	Needs access.Roles
	Any   bool
	Or    access.Roles
	// Clock: it is about the cluster clock, and so not for users of some timelines only.
	Clock bool
}

// row is one path: what it needs, and how it is answered. There is no other way to a handler, so nothing is served without a
// row that says who may ask.
type row struct {
	Right
	answer func(*handler, http.ResponseWriter, *http.Request) string
	// has reports whether the server has the path; nil: always.
	has func(*handler) bool
	// reads: the methods are GET and HEAD, without a body. Otherwise answer looks at the method.
	reads bool
	// exempt from the limit on concurrent requests.
	exempt bool
	// noHead: HEAD would consume what it cannot return.
	noHead bool
}

// rows are all paths, the exact ones first.
var rows = []row{
	{Right: Right{Path: "/timestamp", Needs: access.Timestamps}, answer: (*handler).timestamp, reads: true, noHead: true},
	{Right: Right{Path: httpapi.OraclePath, Needs: access.Timestamps}, answer: (*handler).oracle, reads: true, noHead: true},
	{Right: Right{Path: httpapi.IntervalPath, Needs: access.Timestamps, Clock: true}, answer: (*handler).interval, reads: true, noHead: true},
	{Right: Right{Path: httpapi.IDsPath, Needs: access.IDs}, answer: (*handler).snowflake, has: hasIDs, reads: true, noHead: true},
	{Right: Right{Path: httpapi.LockListPath, Needs: access.Locks}, answer: (*handler).serveLocks},
	{Right: Right{Path: grpc.PathTimestampsGet, Needs: access.Timestamps}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathTimestampsStream, Needs: access.Timestamps}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathIDsGet, Needs: access.IDs}, answer: (*handler).serveGRPC, has: hasIDs},
	{Right: Right{Path: grpc.PathIntervalGet, Needs: access.Timestamps, Clock: true}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathIntervalStamp, Needs: access.Timestamps, Clock: true}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathIntervalWait, Needs: access.Timestamps, Clock: true}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathSessionsConnect, Needs: access.Locks, Or: access.Frontier}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathLocksGet, Needs: access.Locks}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathLocksWatch, Needs: access.Locks}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathFrontiersGet, Needs: access.Frontier}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathFrontiersWatch, Needs: access.Frontier}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathHealthCheck}, answer: (*handler).serveGRPC, exempt: true},
	{Right: Right{Path: grpc.PathHealthWatch}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathReflection}, answer: (*handler).serveGRPC},
	{Right: Right{Path: grpc.PathReflectionAlpha}, answer: (*handler).serveGRPC},
	{Right: Right{Path: "/state", Needs: access.Live}, answer: (*handler).serveLive, has: hasLive},
	{Right: Right{Path: "/metrics", Needs: access.Metrics}, answer: (*handler).serveMetrics, has: func(h *handler) bool { return h.metrics != nil }, reads: true},
	{Right: Right{Path: "/members", Any: true}, answer: (*handler).members, reads: true},
	{Right: Right{Path: "/membership", Any: true}, answer: (*handler).members, reads: true},
	{Right: Right{Path: joinPath}, answer: (*handler).serveAdmin, has: hasAdmin},
	{Right: Right{Path: timelinesPath, Needs: access.Admin, Or: access.Timelines}, answer: (*handler).serveAdmin, has: hasAdmin},
	{Right: Right{Path: upgradePath, Needs: access.Admin}, answer: (*handler).upgrade, has: func(h *handler) bool { return h.operator != nil }},
	{Right: Right{Path: DrainPath, Needs: access.Admin}, answer: (*handler).serveDrain, has: func(h *handler) bool { return h.drain != nil }},
	// The page has no data. The plain text has, and calls [RefuseState].
	{Right: Right{Path: "/"}, answer: (*handler).servePage, has: func(h *handler) bool { return h.page != nil }, reads: true},
	{Right: Right{Path: "/up"}, answer: (*handler).up, reads: true, exempt: true},
	{Right: Right{Path: "/ready"}, answer: (*handler).ready, reads: true, exempt: true},
	{Right: Right{Path: "/ready/timestamps"}, answer: (*handler).readyTimestamps, reads: true, exempt: true},
	{Right: Right{Path: "/ready/ids"}, answer: (*handler).readyIDs, has: hasIDs, reads: true, exempt: true},
	{Right: Right{Path: "/livez"}, answer: (*handler).livez, reads: true, exempt: true},
	{Right: Right{Path: "/readyz"}, answer: (*handler).readyz, reads: true, exempt: true},
	{Right: Right{Path: httpapi.SessionsPath, Needs: access.Locks, Or: access.Frontier}, answer: (*handler).serveSession},
	{Right: Right{Path: httpapi.LocksPath, Needs: access.Locks}, answer: (*handler).serveLock},
	{Right: Right{Path: httpapi.FrontierPath, Needs: access.Frontier}, answer: (*handler).serveFrontier},
	{Right: Right{Path: "/live/", Needs: access.Live}, answer: (*handler).serveLive, has: hasLive},
	{Right: Right{Path: adminPrefix, Needs: access.Admin}, answer: (*handler).serveAdmin, has: hasAdmin, exempt: true},
	// The port for operators serves profiles; see Authorize.
	{Right: Right{Path: "/debug/", Needs: access.Admin}, has: func(*handler) bool { return false }},
}

func hasIDs(h *handler) bool   { return h.ids != nil }
func hasLive(h *handler) bool  { return h.live != nil }
func hasAdmin(h *handler) bool { return h.admin != nil }

// byPath has the rows of exact paths, and below those that end with a slash.
var byPath, below = func() (exact map[string]*row, below []*row) {
	exact = map[string]*row{}
	for i := range rows {
		if p := rows[i].Path; len(p) > 1 && strings.HasSuffix(p, "/") {
			below = append(below, &rows[i])
		} else {
			exact[p] = &rows[i]
		}
	}
	return exact, below
}()

// rowOf returns the row of a path, or nil: then there is no such path, and it needs nothing to be told so.
func rowOf(path string) *row {
	if r := byPath[path]; r != nil {
		return r
	}
	if at := slices.IndexFunc(below, func(r *row) bool { return strings.HasPrefix(path, r.Path) }); at >= 0 {
		return below[at]
	}
	return nil
}

// Rights returns what each path needs, the exact ones first.
func Rights() []Right {
	list := make([]Right, len(rows))
	for i := range rows {
		list[i] = rows[i].Right
	}
	return list
}

func (h *handler) serveAdmin(w http.ResponseWriter, r *http.Request) string { return h.admin(w, r) }
func (h *handler) serveDrain(w http.ResponseWriter, r *http.Request) string {
	return h.delegate(h.drain, w, r)
}
