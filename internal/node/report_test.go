package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/peer"
)

func TestElections_MeasuresTheTimeWithoutALeader(t *testing.T) {
	var e elections
	wall := time.Unix(1000, 0)
	for _, step := range []struct {
		at           time.Duration
		term, leader uint64
	}{
		{1, 1, 0}, {5, 2, 1}, {6, 2, 1}, // the first: nothing was there to miss
		{10, 2, 0}, {12, 2, 1}, // out of sight for a moment
		{20, 3, 0}, {25, 3, 0}, {50, 4, 2},
		{60, 5, 3}, // without a gap
	} {
		e.note(wall.Add(step.at), step.at, step.term, step.leader)
	}
	want := []Election{
		{wall.Add(5), 2, 1, 0}, {wall.Add(50), 4, 2, 30}, {wall.Add(60), 5, 3, 0},
	}
	if len(e.list) != len(want) {
		t.Fatalf("%+v", e.list)
	}
	for i := range want {
		if e.list[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, e.list[i], want[i])
		}
	}
	for term := range uint64(100) {
		e.note(wall, 100, 10+term, 1)
	}
	if len(e.list) != electionsMax || e.list[electionsMax-1].Term != 109 {
		t.Errorf("%d are kept, the last of term %d", len(e.list), e.list[len(e.list)-1].Term)
	}
}

// TestWarnAhead_MeasuresAgainstTheClockThatTimeGoesBy: it is the quorum's when the node's
// own is off.
func TestWarnAhead_MeasuresAgainstTheClockThatTimeGoesBy(t *testing.T) {
	const limit = 500 * time.Millisecond
	exceeded := func(offset time.Duration) replica.Clock {
		return replica.Clock{Known: true, Offset: offset, Exceeded: true}
	}
	for _, tc := range []struct {
		name  string
		lead  time.Duration
		clock replica.Clock
		limit time.Duration
		want  string
	}{
		{"its own clock is right", 9 * time.Second, replica.Clock{Known: true}, limit, ""},
		{"time is ahead of it", time.Hour, replica.Clock{Known: true, Offset: limit}, limit, "lead=1h0m0s"},
		{"its own clock is an hour behind", time.Hour - limit, exceeded(-time.Hour), limit, ""},
		{"its own clock is an hour ahead", limit - time.Hour, exceeded(time.Hour), limit, ""},
		{"its own clock is an hour ahead, and time is too", limit, exceeded(time.Hour), limit, "lead=1h0m0s"},
		{"nobody vouches for any time", time.Hour, replica.Clock{}, limit, ""},
		{"nobody is asked", time.Hour, replica.Clock{}, 0, "lead=1h0m0s"},
	} {
		var log bytes.Buffer
		c := &core{node: &Node{cfg: Config{ClockJumpMax: tc.limit, Log: slog.New(slog.NewTextHandler(&log, nil))}}}
		c.warnAhead(tc.lead, tc.clock)
		c.warnAhead(tc.lead, tc.clock) // once
		if got := log.String(); strings.Count(got, "\n") != min(1, len(tc.want)) || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestWarnFloors_OnceInATerm: a client that tries again and again must not fill the log.
func TestWarnFloors_OnceInATerm(t *testing.T) {
	var log bytes.Buffer
	c := &core{node: &Node{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}}
	var now replica.Counters
	for _, step := range []struct {
		term                    uint64
		passed, raised, refused uint64
		want                    string // in the log, after "level="
	}{
		{1, 0, 0, 0, ""}, {1, 1, 0, 0, "WARN"}, {1, 1, 1, 0, ""}, {1, 0, 0, 1, "ERROR"}, {1, 0, 0, 5, ""},
		{2, 0, 0, 0, ""}, {2, 0, 1, 0, "WARN"}, {3, 0, 0, 1, "ERROR"}, {3, 9, 0, 0, "WARN"},
	} {
		now.FloorsPassed += step.passed
		now.FloorsRaised += step.raised
		now.FloorsRefused += step.refused
		c.warnFloors(step.term, &now)
		c.reported.counters = now
		if got := log.String(); strings.Count(got, "\n") != min(1, len(step.want)) || !strings.Contains(got, "level="+step.want) && step.want != "" {
			t.Errorf("%+v: %q", step, got)
		}
		log.Reset()
	}
}

func TestLogFormation_LogsChangesAndTheEnd(t *testing.T) {
	var log bytes.Buffer
	c := &core{node: &Node{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}}
	tell := func(forming string, id uint64, members int, want string) {
		t.Helper()
		log.Reset()
		c.logFormation(&view{replica: replica.Status{Forming: forming, ClusterID: id}, front: &front.Status{Members: make([]front.Member, members)}})
		if got := log.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", forming, got, want)
		}
	}
	tell("node 2 was not reached yet", 0, 2, "node 2 was not reached yet")
	tell("node 2 was not reached yet", 0, 2, "")
	tell("waiting for node 2", 0x2a, 2, "waiting for node 2")
	tell("", 0x2a, 2, "the cluster is formed")
	tell("", 0x2a, 2, "")
	tell("the cluster is being formed", 0, 1, "") // alone it waits for nobody
	tell("", 0x2a, 1, "cluster=000000000000002a")
}

// TestNoLeader_SaysWhyTheClusterIsNotFormed, and what to do.
func TestNoLeader_SaysWhyTheClusterIsNotFormed(t *testing.T) {
	peers := []peer.PeerStatus{
		{ID: 1, Addr: "a:1", Failure: errors.New("connection refused"), FailedAt: "a:1"}, {ID: 3, Addr: "c:1", Connected: true}, {ID: 4, Addr: "d:1"}, {ID: 5, Addr: "e:1"},
	}
	c := &core{node: &Node{cfg: Config{NodeID: 2}}}
	v := &view{replica: replica.Status{Forming: "the cluster is being formed"}, front: new(front.Status), peers: peers}
	want := "the cluster is being formed; dialed in vain: node 1 at a:1: connection refused (start it there, or correct PEERS on all nodes, or RAFT_ADDR of that one); " +
		"it is for node 4 and node 5 to dial this node: see there (log, NODE_ID, PEERS) why it has not"
	if got := c.noLeader(v); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	c.peers.refusing = map[uint64]*wire.Refusal{1: {Code: wire.RefusedWrongNode, Message: "dialed node 1, node 3 answered"}}
	if got, want := c.noLeader(v), "this node refuses node 1 at a:1 (check PEERS, and NODE_ID there): wrong_node: dialed node 1"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLogRound_TellsOneNowAndThenAndCountsTheOthers(t *testing.T) {
	var log bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	c := &core{node: &Node{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, options))}}}
	for i := range 5 {
		c.logRound(&replica.Round{Requests: i + 1, Timestamps: 10, Took: 30 * time.Microsecond}, time.Hour+time.Duration(i)*roundLogPause/2)
	}
	for _, want := range []string{
		"requests=1 timestamps=10 took=30µs rounds_since=1 requests_since=1", "requests=3 timestamps=10 took=30µs rounds_since=2 requests_since=5",
		"requests=5 timestamps=10 took=30µs rounds_since=2 requests_since=9",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines", n)
	}
	log.Reset()
	c.node.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	if c.logRound(&replica.Round{Requests: 1}, 2*time.Hour); log.Len() > 0 {
		t.Errorf("at info level: %s", log.String())
	}
}
