// Package fakecluster simulates the documents of a cluster for tests of what reads them: the survey, and the page of the survey.
package fakecluster

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// Cluster simulates the members of a cluster: each is a server of a page and of a state
// document that is consistent with those of the others. Tests control which one leads. Its methods, and those of its nodes, may be
// called concurrently.
type Cluster struct {
	start time.Time
	tick  time.Duration // between two documents of a stream
	// Nodes are the members, by their IDs less one.
	Nodes []*Node
	page  func(func() *survey.State) http.Handler

	mu        sync.Mutex
	leader    uint64 // 0 while there is none
	term      uint64
	elections []survey.Election
	apart     map[uint64]bool // members that no other is connected to
}

// Node is one member. Its methods change its settings.
type Node struct {
	*Cluster
	// ID is its node ID, and Addr where it serves.
	ID   uint64
	Addr string

	mu       sync.Mutex
	server   *httptest.Server // nil while it is down
	down     chan struct{}    // closed when it goes down
	noStream bool
	asked    map[string]int // requests by path
	streams  int            // open streams
	edit     func(*survey.State)
}

// historyLength is the number of intervals in the charts.
const historyLength = 300

// New starts n members, the first of which leads, whose streams have a document in each tick. page returns the handler of / for
// a member with these documents; nil: there is none.
func New(t *testing.T, n int, tick time.Duration, page func(func() *survey.State) http.Handler) *Cluster {
	t.Helper()
	now := time.Now()
	if page == nil {
		page = func(func() *survey.State) http.Handler { return http.NotFoundHandler() }
	}
	c := &Cluster{page: page, start: now.Add(-8047 * time.Second), tick: tick, leader: 1, term: 7, apart: map[uint64]bool{}}
	c.elections = []survey.Election{
		{At: now.Add(-8040 * time.Second), Term: 4, Leader: 3, GapSeconds: 1.1},
		{At: now.Add(-2400 * time.Second), Term: 5, Leader: 2, GapSeconds: 0.31},
		{At: now.Add(-150 * time.Second), Term: 7, Leader: 1, GapSeconds: 0.284},
	}
	for i := range n {
		node := &Node{Cluster: c, ID: uint64(i + 1), Addr: "127.0.0.1:0", asked: map[string]int{}, edit: func(*survey.State) {}}
		c.Nodes = append(c.Nodes, node)
		node.startOn(t)
	}
	t.Cleanup(func() {
		for _, node := range c.Nodes {
			node.Kill()
		}
	})
	return c
}

func (n *Node) startOn(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", n.page(n.State))
	mux.HandleFunc("/state", n.serveState)
	mux.HandleFunc("/live/state/stream", n.serveStream)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Addr = listener.Addr().String()
	n.down = make(chan struct{})
	n.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	n.server.Start()
}

// Kill stops a member at once and cuts its streams. The others report it as disconnected.
func (n *Node) Kill() {
	n.mu.Lock()
	server := n.server
	n.server = nil
	if server != nil {
		close(n.down)
	}
	n.mu.Unlock()
	if server == nil {
		return
	}
	n.Isolate(true)
	server.CloseClientConnections()
	server.Close()
}

// Restart starts a killed member at its old address.
func (n *Node) Restart(t *testing.T) {
	t.Helper()
	n.startOn(t)
	n.Isolate(false)
}

// Isolate cuts a member off, or connects it again.
func (n *Node) Isolate(apart bool) {
	n.Cluster.mu.Lock()
	defer n.Cluster.mu.Unlock()
	n.apart[n.ID] = apart
	if apart && n.leader == n.ID {
		n.leader = 0
	}
}

// Change sets a function that edits every document of the member.
func (n *Node) Change(edit func(*survey.State)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.edit = edit
}

// RefuseStreams has a member answer no streams.
func (n *Node) RefuseStreams() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noStream = true
}

// Streams returns how many streams are open.
func (n *Node) Streams() int { return n.open(0) }

func (n *Node) open(more int) (streams int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.streams += more
	return n.streams
}

// Requests returns how often a path was asked for.
func (n *Node) Requests(path string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[path]
}

// Elect makes a member the leader, of the next term.
func (c *Cluster) Elect(id uint64, gap time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = id
	c.term++
	c.elections = append(c.elections, survey.Election{At: time.Now(), Term: c.term, Leader: id, GapSeconds: gap.Seconds()})
}

func (n *Node) count(path string) (noStream bool, down chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[path]++
	return n.noStream, n.down
}

func (n *Node) serveState(w http.ResponseWriter, _ *http.Request) {
	n.count("/state")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(n.State())
}

func (n *Node) serveStream(w http.ResponseWriter, r *http.Request) {
	noStream, down := n.count("/live/state/stream")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if noStream {
		http.Error(w, "no streams here", http.StatusNotFound)
		return
	}
	n.open(1)
	defer n.open(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(n.tick)
	defer ticker.Stop()
	for {
		text, _ := json.Marshal(n.State())
		fmt.Fprintf(w, "data: %s\n\n", text)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-down:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// wave returns a figure that looks measured, always the same for the same second.
func wave(second int64, salt float64) float64 {
	s := float64(second % 100000)
	noise := math.Sin(s*12.9898+salt*78.233) * 43758.5453
	noise -= math.Floor(noise)
	return 0.5*math.Sin(s/23+salt) + 0.25*math.Sin(s/7.3+2*salt) + 0.5*(noise-0.5)
}

// leaderAt returns the leader at a given time.
func leaderAt(elections []survey.Election, leader uint64, at, now time.Time) uint64 {
	if !at.Before(now.Add(-time.Second / 2)) {
		return leader
	}
	led := uint64(0)
	for _, e := range elections {
		if at.Before(e.At) {
			break
		}
		led = e.Leader
	}
	return led
}

// State returns the current document.
func (n *Node) State() *survey.State {
	c := n.Cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UTC()
	s := &survey.State{
		Version: "v0.9.0", Now: now, Term: c.term, ReadMode: "quorum",
		Node:      survey.Node{ID: n.ID, Addr: n.Addr, Role: "follower", Ready: true, UptimeSeconds: now.Sub(c.start).Seconds(), Loops: 1},
		Elections: slices.Clone(c.elections),
		Totals:    survey.Totals{Timestamps: 9_007_199_254_740_993, Requests: 812_344_120, IDs: 1_204_331, Errors: 7},
		Clock:     survey.Clock{OffsetFromMedianSeconds: offset(n.ID), OK: true},
	}
	if c.apart[n.ID] || c.leader == 0 {
		s.Node.Role, s.Node.Ready, s.Node.NotReady = "candidate", false, "no leader is known"
	}
	if c.leader != 0 && !c.apart[n.ID] {
		s.Leader = &survey.Leader{NodeID: c.leader, Addr: c.Nodes[c.leader-1].Addr}
	}
	leads := s.Leader != nil && c.leader == n.ID
	for _, other := range c.Nodes {
		m := survey.Member{NodeID: other.ID, Addr: other.Addr, PeerAddr: fmt.Sprintf("127.0.0.1:%d", 60000+other.ID), Self: other.ID == n.ID,
			Connected: other.ID != n.ID && !c.apart[other.ID] && !c.apart[n.ID], Leader: s.Leader != nil && other.ID == c.leader}
		if !m.Self && m.Connected {
			m.ClockOffsetSeconds = new(offset(other.ID) - offset(n.ID))
		}
		if leads {
			m.LagEntries = new(uint64(0))
			if c.apart[other.ID] {
				m.LagEntries = new(uint64(now.Unix() % 1000))
			}
		}
		s.Members = append(s.Members, m)
	}
	s.History = c.history(n.ID, now)
	last := historyLength - 1
	s.Rates = survey.Rates{TimestampsPerSecond: s.History.TimestampsPerSecond[last], RequestsPerSecond: s.History.TimestampsPerSecond[last], IDsPerSecond: s.History.IDsPerSecond[last]}
	s.Ceiling = &survey.Mark{Time: uint64(now.UnixNano()) + 350e6, LeadSeconds: 0.35 + 0.02*wave(now.Unix(), 9)}
	if leads {
		s.Node.Role = "leader"
		lead := s.History.LeadSeconds[last]
		s.Epoch = &survey.Mark{Time: uint64(now.UnixNano() + int64(lead*1e9)), LeadSeconds: lead}
		p50, p99 := s.History.P50[last], s.History.P99[last]
		s.Latency = survey.Latency{P50: &p50, P99: &p99, P999: new(2.1 * p99), Max: new(3.4 * p99)}
	}
	begin := now.Truncate(10 * time.Second)
	s.Workers = []survey.Worker{{Worker: n.ID + 2, Start: begin.UnixMilli(), End: begin.Add(20 * time.Second).UnixMilli(),
		LeftSeconds: begin.Add(20 * time.Second).Sub(now).Seconds()}}
	n.mu.Lock()
	edit := n.edit
	n.mu.Unlock()
	edit(s)
	return s
}

func offset(id uint64) float64 { return []float64{0, 0.00031, -0.00118}[(id-1)%3] }

func (c *Cluster) history(id uint64, now time.Time) *survey.History {
	h := &survey.History{IntervalSeconds: 1}
	none := math.NaN()
	for i := range historyLength {
		at := now.Add(-time.Duration(historyLength-1-i) * time.Second)
		second := at.Unix()
		timestamps, p50, p99, lead := 0.0, none, none, none
		part := 0.0 // of the interval
		for tenth := range 10 {
			if leaderAt(c.elections, c.leader, at.Add(-time.Duration(tenth)*100*time.Millisecond), now) == id {
				part += 0.1
			}
		}
		if part > 0 {
			timestamps = part * (96000 + 14000*wave(second, 1))
			p50 = 0.00042 * math.Exp(0.25*wave(second, 2))
			p99 = 0.0013 * math.Exp(0.6*wave(second, 3))
			if second%83 == 0 {
				p99 *= 7
			}
			lead = 0.048 + 0.03*wave(second, 4)
		}
		h.TimestampsPerSecond = append(h.TimestampsPerSecond, timestamps)
		h.IDsPerSecond = append(h.IDsPerSecond, math.Round(140+30*wave(second, float64(id))))
		h.P50, h.P99, h.LeadSeconds = append(h.P50, p50), append(h.P99, p99), append(h.LeadSeconds, lead)
	}
	return h
}

// Timelines returns what a node of three tells of timelines that these own. Each serves a hundred times its ID of requests in a second, for two
// timestamps each, to busy timelines; the first of these gets as much as the others together.
func Timelines(id uint64, busy int) *survey.Timelines {
	load := func(part float64) survey.TimelineLoad {
		n := part * 100 * float64(id)
		return survey.TimelineLoad{Requests: n, Timestamps: 2 * n}
	}
	t := &survey.Timelines{
		Permitted: true, Placement: "spread", Total: 1234, GroupsMade: 2, Load: load(1), Busiest: []survey.BusyTimeline{}, Moves: 3,
		Owners:    []survey.GroupOwner{{NodeID: 1, Groups: 4, Timelines: 400}, {NodeID: 2, Groups: 3, Timelines: 334}, {NodeID: 3, Groups: 4, Timelines: 500}},
		LastMoves: []survey.GroupMove{{At: time.Now().Add(-90 * time.Second), From: 2, To: 3, Groups: 2}},
	}
	for i := range min(busy, survey.BusiestMax) {
		part := 0.5 / float64(max(1, busy-1))
		if i == 0 {
			part = 0.5
		}
		t.Busiest = append(t.Busiest, survey.BusyTimeline{ID: 1000*id + uint64(i), TimelineLoad: load(part)})
	}
	return t
}

// Read returns the document in a file.
func Read(t *testing.T, file string) *survey.State {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := survey.ReadState(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
