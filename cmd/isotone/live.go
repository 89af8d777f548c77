package main

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/snowflake"
)

// documents is the live documents of a node: its own state, which the dashboards of all
// members read, and those that are set.
type documents struct {
	state *live.Set
	set   *live.Set
	own   *stateSource
}

func newDocuments(s *config.Settings, n *node.Node, addr string, layout snowflake.Layout, m *telemetry.Metrics, log *slog.Logger) (*documents, error) {
	interval := s.LiveInterval
	d := &documents{own: newStateSource(n, addr, layout, interval, m)}
	observe := live.Observer{Loaded: m.ObserveLiveLoad, Failing: m.SetLiveFailing, Streams: m.AddLiveStreams, Cut: m.CountLiveCut}
	var err error
	if d.set, err = live.New(live.Config{Sources: s.Live, Interval: interval, Origins: s.LiveOrigins, Log: log, Observe: observe}); err != nil {
		return nil, err
	}
	// It says what /members, /metrics and /ready say to everybody.
	d.state, err = live.New(live.Config{
		Sources: []live.Source{live.Func("state", d.own.Load)}, Interval: interval, Origins: []string{"*"}, Log: log, Observe: observe,
	})
	if err != nil {
		d.set.Close()
		return nil, err
	}
	return d, nil
}

// ServeHTTP answers everything below /live/.
func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	set := d.set
	if name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/live/"), "/"); name == "state" {
		set = d.state
	}
	set.Handler().ServeHTTP(w, r)
}

// answer returns what stands ready for a request; see http1.Config.Live.
func (d *documents) answer(name, acceptEncoding, ifNoneMatch string) []byte {
	set := d.set
	if name == "state" {
		set = d.state
	}
	doc := set.Lookup(name)
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
