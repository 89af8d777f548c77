package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/oracle"
	"github.com/isotone/isotone/snowflake"
)

// newSkewed returns as much of a node as judges its clock, and its log.
func newSkewed() (*Node, *bytes.Buffer) {
	var log bytes.Buffer
	n := &Node{
		cfg:   Config{Log: slog.New(slog.NewTextHandler(&log, nil))},
		ids:   newIDs(IDConfig{Layout: snowflake.Twitter, FixedWorker: oracle.AnyWorker, Lease: time.Second}, SystemClock{}, 1),
		links: map[uint64]*peerConn{},
	}
	n.wall = time.Unix(0, 0)
	n.ids.refused.Store(errClockUnknown)
	return n, &log
}

func (n *Node) setSkews(skews ...time.Duration) {
	n.links = map[uint64]*peerConn{9: {}} // of one that has said nothing
	for i, skew := range skews {
		n.links[uint64(i)] = &peerConn{node: n, ahead: skew, heard: true}
	}
}

func TestSkew_IsTheMedianOfThePeers(t *testing.T) {
	for _, c := range []struct{ skews, want []time.Duration }{
		{nil, nil},
		{[]time.Duration{7}, []time.Duration{7}},
		{[]time.Duration{time.Hour, 1}, []time.Duration{1}}, // one bad clock is not ours
		{[]time.Duration{-time.Hour, 3}, []time.Duration{3}},
		{[]time.Duration{-5, 3}, []time.Duration{3}},
		{[]time.Duration{time.Hour, 2, -time.Hour}, []time.Duration{2}},
		{[]time.Duration{time.Hour, time.Minute, -4, -time.Hour}, []time.Duration{-4}},
		{[]time.Duration{1 << 62, -1 << 63}, []time.Duration{1 << 62}},
	} {
		n, _ := newSkewed()
		n.setSkews(c.skews...)
		got, known := n.skew()
		if known != (c.want != nil) || known && got != c.want[0] {
			t.Errorf("%v: %v, %v, want %v", c.skews, got, known, c.want)
		}
	}
}

func TestCheckSkew_StopsIdsAndLetsThemBeMadeAgain(t *testing.T) {
	n, log := newSkewed()
	refused := func(want error) {
		t.Helper()
		n.checkSkew(3)
		if err := n.ids.refused.Load(); want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("refused with %v, want %v", err, want)
		}
	}
	refused(isotone.ErrNoLeader) // no peer has been heard of
	n.setSkews(skewMax, 0, skewMax)
	refused(nil)
	if log.Len() > 0 {
		t.Errorf("logged without a cause: %s", log)
	}
	n.setSkews(skewMax+1, skewMax+1)
	refused(isotone.ErrClock)
	n.setSkews(-skewMax-1, -skewMax-1)
	refused(isotone.ErrClock)
	if why := n.ids.refused.Load().Message; !strings.Contains(why, "ahead of") {
		t.Errorf("%q", why)
	}
	n.setSkews() // out of sight: what was decided stays
	refused(isotone.ErrClock)
	n.setSkews(0)
	refused(nil)
	if got := log.String(); strings.Count(got, "ids are refused") != 1 || strings.Count(got, "ids are made again") != 1 {
		t.Errorf("log: %s", got)
	}
	n.setSkews()
	refused(nil)

	n.ids.refused.Store(errStopped)
	n.setSkews(0)
	n.checkSkew(3)
	if n.ids.refused.Load() != errStopped {
		t.Error("a node that stops makes ids again")
	}
	alone, _ := newSkewed()
	alone.checkSkew(1)
	if err := alone.ids.refused.Load(); err != nil {
		t.Errorf("a node alone: %v", err)
	}
}
