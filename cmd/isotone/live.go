package main

import (
	"errors"
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
	sources, err := live.Parse(s.Live)
	if err != nil {
		return nil, err
	}
	origins, err := live.ParseOrigins(s.LiveOrigins)
	if err != nil {
		return nil, err
	}
	interval := s.LiveIntervalMS.Milliseconds()
	d := &documents{own: newStateSource(n, addr, layout, interval, m)}
	observe := live.Observer{Loaded: m.ObserveLiveLoad, Failing: m.SetLiveFailing, Streams: m.AddLiveStreams, Cut: m.CountLiveCut}
	if d.set, err = live.New(live.Config{Sources: sources, Interval: interval, Origins: origins, Log: log, Observe: observe}); err != nil {
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

// liveFaults lists what is wrong with the settings of live documents.
func liveFaults(s *config.Settings) (faults config.Faults) {
	add := func(env, flag string, err error) {
		var list live.Faults
		if errors.As(err, &list) {
			for _, f := range list {
				// config.Fault has quotes of its own.
				faults = append(faults, config.Fault{Env: env, Flag: flag, Value: strings.Trim(f.Entry, `"`), Want: f.Want})
			}
		}
	}
	_, err := live.Parse(s.Live)
	add("LIVE", "live", err)
	_, err = live.ParseOrigins(s.LiveOrigins)
	add("LIVE_ORIGINS", "live-origins", err)
	return faults
}
