package web

import (
	"context"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// joinPath is asked by nodes that are not members yet, founders among them, which have no rights anywhere. It tells the members only for
// a node that was added and has not joined.
const joinPath = adminPrefix + "join"

// fromElsewhere are fields of requests that proxies forward, or that pages in a browser make. Neither a proxy nor a browser
// on this machine makes those behind it clients of this machine.
// Those that begin with forwardedPrefix are among them.
var fromElsewhere = []string{"Forwarded", "X-Real-Ip", "Via", "Origin", "Sec-Fetch-Site"}

const forwardedPrefix = "X-Forwarded-"

// isDirect reports whether r has been sent by a program that meant this machine. The name of another host in Host is that of
// a proxy's client, or of a web page whose name resolves to this machine now (DNS rebinding).
// HTTP/1.0 is what nginx speaks to servers behind it, unless it is told otherwise.
func isDirect(r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) {
		return false
	}
	for name := range r.Header {
		if strings.HasPrefix(name, forwardedPrefix) || slices.Contains(fromElsewhere, name) {
			return false
		}
	}
	host := r.Host
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Unmap().IsLoopback()
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// RefuseState answers a request whose client may not read the state of the cluster, and reports whether it has.
func RefuseState(w http.ResponseWriter, r *http.Request) (refused bool) {
	s := sessionOf(r.Context())
	err := s.Require(access.Live)
	if err != nil {
		refuse(w, r, s, err)
	}
	return err != nil
}

// IsFromThisMachine reports whether r comes from a program on this machine that is neither a proxy nor a browser, as far as r shows.
func IsFromThisMachine(r *http.Request) bool {
	return httpapi.AddrOf(r).Unmap().IsLoopback() && isDirect(r)
}

// operatorKey is the key of the name of an operator in the context of a request.
type operatorKey struct{}

// WithOperator returns a context for requests of somebody who has proven elsewhere to be an operator; who is for the log. Only
// servers that nobody else reaches may use it.
func WithOperator(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, operatorKey{}, who)
}

// Authorize returns a session for whom r speaks, if it may ask for its path. Its errors match
// isotone.ErrUnauthorized, isotone.ErrForbidden, or isotone.ErrOverloaded. It waits while
// credentials are checked.
func Authorize(c *access.Control, r *http.Request) (*access.Session, error) {
	if who, ok := r.Context().Value(operatorKey{}).(string); ok {
		return c.Operator(who), nil
	}
	s := c.Request(httpapi.AddrOf(r), httpapi.ChainsOf(r), r.TLS != nil)
	if !isDirect(r) {
		s.Elsewhere()
	}
	if values := r.Header["Authorization"]; len(values) > 0 && c != nil {
		credentials, ok := access.ParseAuthorization(values[0])
		if !ok || len(values) > 1 {
			return s, isotone.Errorf(isotone.CodeUnauthorized, "Authorization: want Bearer NAME~SECRET, or Basic")
		}
		if err := s.Prove(r.Context(), credentials); err != nil {
			return s, err
		}
	}
	switch row := rowOf(r.URL.Path); {
	case row == nil:
	case row.Or != 0 && s.May(row.Or):
	case row.Needs != 0:
		if err := s.Require(row.Needs); err != nil || !row.Clock {
			return s, err
		}
		return s, s.RequireClock()
	case row.Any:
		return s, s.RequireAny()
	}
	return s, nil
}

// sessionKey is the key of a request's session in its context.
type sessionKey struct{}

// sessionOf returns the session that authorize has put into a context.
func sessionOf(ctx context.Context) *access.Session {
	return access.Of(ctx.Value(sessionKey{}))
}

// FloorRaised logs who has moved time by the request of an operator; see access.Session.Raised.
func FloorRaised(ctx context.Context, a front.FloorRaised) { sessionOf(ctx).Raised(a.Before, a.Time) }

// TimelinesRaised logs who has moved the time of timelines; see access.Session.RaisedTimelines.
func TimelinesRaised(ctx context.Context, names []string, to uint64) {
	sessionOf(ctx).RaisedTimelines(names, to)
}

// authorize answers requests that may not be served, with their code. Otherwise it returns the
// request to serve.
func (h *handler) authorize(w http.ResponseWriter, r *http.Request) (_ *http.Request, code string) {
	if h.access == nil {
		return r, ""
	}
	s, err := Authorize(h.access, r)
	if err != nil {
		return r, refuse(w, r, s, err)
	}
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)), ""
}

// refuse answers a request that s may not have, with err, and returns its code. A client that does
// not stop is told once more, and loses the connection: HTTP/2 sends GOAWAY. One of HTTP/1
// has one request at a time, and is not counted.
func refuse(w http.ResponseWriter, r *http.Request, s *access.Session, err error) string {
	if r.ProtoMajor > 1 && s.Refused() && r.ProtoMajor < 3 {
		w.Header()["Connection"] = connectionClose
	}
	return fail(w, r, err)
}

// isReset reports whether the client has reset the stream of r, or ended its connection, in HTTP/2.
// In HTTP/1 a client that takes a request back has no connection any more.
func isReset(r *http.Request) bool { return r.ProtoMajor == 2 && r.Context().Err() != nil }

// takenBack reports whether r was reset before anything was done for it. Nobody reads the answer,
// but the connection ends if the client does not stop.
func (h *handler) takenBack(w http.ResponseWriter, r *http.Request) bool {
	if h.access == nil || !isReset(r) {
		return false
	}
	refuse(w, r, h.access.Request(httpapi.AddrOf(r), nil, false), errTakenBack)
	return true
}

var errTakenBack = isotone.Errorf(isotone.CodeDeadlineExceeded, "the client has taken the request back")

// isJSON reports whether a request says that its body is JSON. Browsers do not send that across sites without asking.
func isJSON(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == httpapi.ContentTypeJSON
}

var errNotJSON = isotone.Errorf(isotone.CodeInvalidArgument, "Content-Type: want %s", httpapi.ContentTypeJSON)

// isAction reports whether a request changes something for operators.
func isAction(r *http.Request) bool {
	row := rowOf(r.URL.Path)
	return r.Method != http.MethodGet && r.Method != http.MethodHead && row != nil && row.Needs == access.Admin
}
