package server

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/utc"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/snowflake"
)

// historyMax is the number of intervals in the history of the state document.
const historyMax = 300

// stateSource builds the state document of a node. Load must not be called concurrently.
type stateSource struct {
	node      *node.Node
	users     *access.Control
	version   string
	addr      string
	layout    snowflake.Layout
	interval  time.Duration
	metrics   *telemetry.Metrics
	sampler   *telemetry.Sampler
	history   survey.History
	measured  time.Time // when the rates were measured
	timelines timelineSource
	latest    atomic.Pointer[survey.State]
}

func newStateSource(n *node.Node, users *access.Control, version, addr string, layout snowflake.Layout, interval time.Duration, m *telemetry.Metrics, t timelineSource) *stateSource {
	return &stateSource{
		node: n, users: users, version: version, addr: addr, layout: layout, interval: interval, metrics: m,
		sampler: m.NewSampler(time.Now()), timelines: t, history: survey.History{IntervalSeconds: interval.Seconds()},
	}
}

// Latest returns the latest state, or nil before the first Load. Safe for concurrent use.
func (s *stateSource) Latest() *survey.State { return s.latest.Load() }

// Load measures the node and returns its state as JSON; see live.Func.
func (s *stateSource) Load(context.Context) ([]byte, error) {
	r, ok := s.node.Report()
	if !ok {
		return nil, errors.New("the node is stopping")
	}
	state := s.describe(&r)
	status, known := utc.Read()
	state.Clock.UTC = describeUTC(status, known)
	s.metrics.SetUTC(status, known)
	if now, before := time.Now(), s.latest.Load(); before == nil || now.Sub(s.measured) >= s.interval/2 {
		s.measured = now
		s.measure(state, s.sampler.Next(now))
	} else { // the node has changed meanwhile: rates of so short a time say nothing
		state.Rates, state.Latency, state.Totals, state.History = before.Rates, before.Latency, before.Totals, before.History
	}
	s.latest.Store(state)
	return json.Marshal(state)
}

// stale reports whether the node has changed since the latest Load: what /ready says, who leads, or its own role. Safe
// for concurrent use.
func (s *stateSource) stale() bool {
	is, was := s.node.Status(), s.latest.Load()
	if was == nil || is.Term != was.Term || is.Role != was.Node.Role || is.NotReady != was.Node.NotReady || is.Draining != was.Node.Draining {
		return true
	}
	return (was.Leader == nil) != (is.Leader == 0) || was.Leader != nil && (was.Leader.NodeID != is.Leader || was.Leader.Addr != is.LeaderAddr)
}

// describe returns the state in r, without rates and history.
func (s *stateSource) describe(r *node.Report) *survey.State {
	mark := func(unixNanos uint64) *survey.Mark {
		return &survey.Mark{Time: unixNanos, LeadSeconds: time.Duration(int64(unixNanos) - r.Now.UnixNano()).Seconds()}
	}
	state := &survey.State{
		Version: s.version, Now: r.Now.UTC(), Term: r.Status.Term, ReadMode: r.Mode.String(),
		Node: survey.Node{
			ID: r.Status.NodeID, Addr: s.addr, Role: r.Status.Role, Ready: r.Status.NotReady == "", NotReady: r.Status.NotReady,
			Forming: r.Forming, Draining: r.Status.Draining, UptimeSeconds: r.Uptime.Seconds(), Loops: r.Loops,
		},
		Clock: describeClock(r), Interval: describeInterval(r), Timelines: s.timelines.describe(r.Groups, r.Now), Locks: describeLocks(s.node), Members: describeMembers(r), Workers: s.describeWorkers(r), Elections: []survey.Election{},
	}
	if r.Status.ClusterID != 0 {
		state.ClusterID = isotone.ClusterID(r.Status.ClusterID).String()
	}
	if r.Status.Leader != 0 {
		state.Leader = &survey.Leader{NodeID: r.Status.Leader, Addr: r.Status.LeaderAddr}
	}
	if r.Serving {
		state.Epoch = mark(r.Time)
	}
	if r.Status.Ceiling != 0 {
		state.Ceiling = mark(r.Status.Ceiling)
	}
	for _, e := range r.Elections {
		state.Elections = append(state.Elections, survey.Election{At: e.At.UTC(), Term: e.Term, Leader: e.Leader, GapSeconds: e.Gap.Seconds()})
	}
	if m := describeMove(s.users); m != nil {
		m.User, m.Client = "", ""
		state.LastMove = m
	}
	return state
}

func describeMembers(r *node.Report) []survey.Member {
	members := []survey.Member{}
	for _, m := range r.Status.Members {
		member := survey.Member{
			NodeID: m.NodeID, Addr: m.Addr, PeerAddr: m.PeerAddr, OtherAddr: m.OtherAddr, Learner: m.Learner,
			Self: m.NodeID == r.Status.NodeID, Leader: m.NodeID == r.Status.Leader,
		}
		member.Connected = member.Self
		for _, p := range r.Peers {
			if p.ID == m.NodeID {
				describePeer(&member, p)
			}
		}
		members = append(members, member)
	}
	return members
}

func (s *stateSource) describeWorkers(r *node.Report) []survey.Worker {
	workers := []survey.Worker{}
	for _, w := range r.Workers {
		datacenter, _ := s.layout.Split(int(w.Worker))
		left := time.Duration(int64(w.End)-r.Now.UnixMilli()) * time.Millisecond
		workers = append(workers, survey.Worker{
			Worker: uint64(w.Worker), Datacenter: uint64(datacenter), Start: int64(w.Start), End: int64(w.End), LeftSeconds: left.Seconds(),
		})
	}
	return workers
}

func describeClock(r *node.Report) survey.Clock {
	c := survey.Clock{
		OffsetFromMedianSeconds: (-r.Skew).Seconds(), OK: r.Skew.Abs() <= node.SkewMax,
		Exceeded: r.Clock.Exceeded, SoleVoter: r.Clock.SoleVoter, LimitSeconds: r.ClockJumpMax.Seconds(),
	}
	if r.Clock.Known {
		offset := r.Clock.Offset.Seconds()
		c.OffsetFromQuorumSeconds = &offset
	}
	return c
}

// describeUTC returns what the machine says about its wall clock, or nil if it says nothing.
func describeUTC(s utc.Status, known bool) *survey.UTC {
	if !known {
		return nil
	}
	u := &survey.UTC{Source: string(s.Source), Synchronized: s.Synchronized}
	if s.Known {
		u.ErrorSeconds = new(s.Error.Seconds())
	}
	return u
}

// describeInterval returns what the node knows of the cluster clock, or nil if it reads none.
func describeInterval(r *node.Report) *survey.Interval {
	if r.IntervalMax == 0 {
		return nil
	}
	i := &survey.Interval{MaxSeconds: r.IntervalMax.Seconds(), Running: r.Interval.Running, Broken: r.Interval.Broken, Blamed: r.Interval.Blamed}
	if r.Interval.Known {
		seconds := func(nanos int64) *float64 { return new(time.Duration(nanos).Seconds()) }
		i.WidthSeconds, i.LimitSeconds, i.AgeSeconds = seconds(r.Interval.Width), seconds(r.Interval.Limit), seconds(r.Interval.Age)
	}
	return i
}

func describePeer(m *survey.Member, p node.PeerReport) {
	m.Connected = p.Connected
	if p.ClockKnown {
		offset := p.ClockOffset.Seconds()
		m.ClockOffsetSeconds = &offset
	}
	if p.LagKnown {
		m.LagEntries = &p.Lag
	}
}

// measure adds rates, latencies, totals and the history to state.
func (s *stateSource) measure(state *survey.State, sample telemetry.Sample) {
	took := max(sample.Took.Seconds(), time.Millisecond.Seconds())
	state.Rates = survey.Rates{
		TimestampsPerSecond: float64(sample.Timestamps) / took, RequestsPerSecond: float64(sample.Requests) / took,
		IDsPerSecond: float64(sample.IDs) / took, ErrorsPerSecond: float64(sample.Errors) / took,
	}
	quantile := func(q float64) *float64 {
		d, ok := sample.Latency.Quantile(q)
		if !ok {
			return nil
		}
		seconds := d.Seconds()
		return &seconds
	}
	state.Latency = survey.Latency{P50: quantile(0.5), P99: quantile(0.99), P999: quantile(0.999), Max: quantile(1)}
	all := s.metrics.Totals()
	state.Totals = survey.Totals{Timestamps: all.Timestamps, Requests: all.Requests, IDs: all.IDs, Errors: all.Errors}

	h := &s.history
	remember(&h.TimestampsPerSecond, &state.Rates.TimestampsPerSecond)
	remember(&h.IDsPerSecond, &state.Rates.IDsPerSecond)
	remember(&h.P50, state.Latency.P50)
	remember(&h.P99, state.Latency.P99)
	var lead *float64
	if state.Epoch != nil {
		lead = &state.Epoch.LeadSeconds
	}
	remember(&h.LeadSeconds, lead)
	state.History = &survey.History{
		IntervalSeconds: h.IntervalSeconds, TimestampsPerSecond: slices.Clone(h.TimestampsPerSecond), IDsPerSecond: slices.Clone(h.IDsPerSecond),
		P50: slices.Clone(h.P50), P99: slices.Clone(h.P99), LeadSeconds: slices.Clone(h.LeadSeconds),
	}
}

// remember appends a figure, nil for none, and drops the oldest beyond historyMax.
func remember(series *survey.Series, figure *float64) {
	if len(*series) == historyMax {
		*series = slices.Delete(*series, 0, 1)
	}
	if figure == nil {
		*series = append(*series, math.NaN())
		return
	}
	*series = append(*series, *figure)
}
