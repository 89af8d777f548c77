package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/operator"
)

// documents are the live documents of a node.
type documents struct {
	state *live.Set // the node's own state, which the dashboards of all members read
	set   *live.Set // those that LIVE sets
	own   *stateSource

	reloading sync.Mutex
}

func newDocuments(s *config.Settings, n *node.Node, users *access.Control, version, addr string, m *telemetry.Metrics, log, set *slog.Logger) (*documents, error) {
	interval := s.LiveInterval
	t := timelineSource{permitted: s.Timelines, spread: s.GroupSettle > 0, busy: n.BusyTimelines}
	d := &documents{own: newStateSource(n, users, version, addr, s.SnowflakeLayout, interval, m, t)}
	observe := live.Observer{Loaded: m.ObserveLiveLoad, Failing: m.SetLiveFailing, Streams: m.AddLiveStreams, Cut: m.CountLiveCut}
	var err error
	if d.set, err = live.New(live.Config{Sources: s.Live, Interval: interval, Origins: s.LiveOrigins, Log: set, Observe: observe}); err != nil {
		return nil, err
	}
	// The dashboard of each member reads the state of all.
	d.state, err = live.New(live.Config{
		Sources: []live.Source{live.Func("state", d.own.Load)}, Interval: interval, Origins: s.LiveOrigins,
		OriginAllowed: func(origin string) bool { return isMembers(origin, n.Status().Members) }, Log: log, Observe: observe,
	})
	if err != nil {
		d.set.Close()
		return nil, err
	}
	// Scripts that start a node ask for its state next, so the state is there before the node answers.
	select {
	case <-d.state.Loaded("state"):
	case <-time.After(firstStateMax):
	}
	return d, nil
}

// firstStateMax bounds the wait for the first state of a node, which takes microseconds on an idle machine.
const firstStateMax = 5 * time.Second

// isMembers reports whether a web origin is that of a member's dashboard: its client address, or where that is a loopback
// address any other name of this machine with its port.
func isMembers(origin string, members []front.Member) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != origin {
		return false
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return slices.ContainsFunc(members, func(m front.Member) bool {
		memberHost, memberPort, err := net.SplitHostPort(m.Addr)
		return err == nil && port == memberPort && (strings.EqualFold(host, memberHost) || operator.IsLoopback(host) && operator.IsLoopback(memberHost))
	})
}

// of returns the set that has the document with that name, if there is one.
func (d *documents) of(name string) *live.Set {
	if name == "state" {
		return d.state
	}
	return d.set
}

// ServeHTTP answers all requests below /live/.
func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/live/"), "/")
	if name == "state" {
		d.renew(r.Context())
	}
	d.of(name).Handler().ServeHTTP(w, r)
}

// renew has the state be no older than what the node itself says about its readiness, its leader and its role.
func (d *documents) renew(ctx context.Context) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if d.own.stale() {
		d.state.Reload(ctx, "state")
	}
}

// answer returns the prepared answer to a request, or nil; see http1.Config.Live. Only ServeHTTP may wait for a state.
func (d *documents) answer(name, acceptEncoding, ifNoneMatch string) []byte {
	if name == "state" && d.own.stale() {
		return nil
	}
	doc := d.of(name).Lookup(name)
	if doc == nil {
		return nil
	}
	return doc.Response(acceptEncoding != "" && live.AcceptsGzip(acceptEncoding), false, ifNoneMatch)
}

// close ends all streams and loads.
func (d *documents) close() {
	d.state.Close()
	d.set.Close()
}
