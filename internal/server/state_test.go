package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/utc"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/node"
)

func TestDescribeClock_TellsTheQuorumsOnlyIfItIsKnown(t *testing.T) {
	r := &node.Report{Skew: -2 * time.Second, SkewKnown: true, ClockJumpMax: 500 * time.Millisecond}
	if c := describeClock(r); c.OffsetFromQuorumSeconds != nil || c.OffsetFromMedianSeconds != 2 || !c.OK || c.LimitSeconds != 0.5 {
		t.Errorf("not known: %+v", c)
	}
	r.Clock = replica.Clock{Known: true, Offset: -time.Hour, Exceeded: true, SoleVoter: true}
	if c := describeClock(r); c.OffsetFromQuorumSeconds == nil || *c.OffsetFromQuorumSeconds != -3600 || !c.Exceeded || !c.SoleVoter {
		t.Errorf("%+v", c)
	}
}

func TestDescribeUTC_HasABoundOnlyIfThereIsOne(t *testing.T) {
	if u := describeUTC(utc.Status{}, false); u != nil {
		t.Errorf("nobody tells: %+v", u)
	}
	if u := describeUTC(utc.Status{Source: utc.Kernel}, true); u.Source != "kernel" || u.Synchronized || u.ErrorSeconds != nil {
		t.Errorf("not synchronized: %+v", u)
	}
	if u := describeUTC(utc.Status{Source: utc.ClockBound, Synchronized: true, Known: true, Error: time.Millisecond}, true); !u.Synchronized || u.ErrorSeconds == nil || *u.ErrorSeconds != 0.001 {
		t.Errorf("%+v", u)
	}
}

func TestTimelineSource_TellsNoNames(t *testing.T) {
	load := front.TimelineLoad{Requests: 3, Timestamps: 5, Refused: 1}
	asked := 0
	busy := func(limit int) (front.BusyTimelines, error) {
		asked++
		return front.BusyTimelines{TimelineLoad: load, Timelines: slices.Repeat([]front.BusyTimeline{{Name: "secret", Group: "hidden", ID: 1 << 60, TimelineLoad: load}}, limit)}, nil
	}
	if s := (&timelineSource{busy: busy}).describe([]front.GroupRecord{{Name: "empty"}}, time.Now()); s != nil {
		t.Errorf("without any: %+v", s)
	}
	if s := (&timelineSource{permitted: true, busy: busy}).describe(nil, time.Now()); s == nil || !s.Permitted || s.Placement != "leader" || s.Owners == nil || s.Busiest == nil || s.LastMoves == nil || asked > 0 {
		t.Errorf("permitted: %+v", s)
	}
	from := &timelineSource{spread: true, busy: busy, moves: groupMoves{owners: map[string]uint64{"hidden": 1}}}
	s := from.describe([]front.GroupRecord{
		{Name: "h001", NodeID: 2, Timelines: 4}, {Name: "hidden", NodeID: 2, Timelines: 2, Made: true}, {Name: "empty", Made: true}, {Name: "h002", Timelines: 1},
	}, time.Now())
	text, err := json.Marshal(s)
	if err != nil || len(s.Busiest) != survey.BusiestMax || strings.Contains(string(text), "secret") || strings.Contains(string(text), "hidden") {
		t.Errorf("%s, %v", text, err)
	}
	for _, want := range []string{
		`"placement":"spread","total":7,"groupsMade":2,"owners":[{"nodeID":0,"groups":1,"timelines":1},{"nodeID":2,"groups":2,"timelines":6}]`,
		`"load":{"requestsPerSecond":3,"timestampsPerSecond":5,"refusedPerSecond":1}`,
		`{"id":"1152921504606846976","requestsPerSecond":3,`, `"moves":"1"`, `"from":1,"to":2,"groups":1}]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestGroupMoves_AreCountedByPairs(t *testing.T) {
	var m groupMoves
	at := time.Unix(1, 0).UTC()
	m.note(map[string]uint64{"a": 1, "b": 1, "c": 0, "d": 2}, at)
	m.note(map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 2, "new": 3}, at)
	if want := []survey.GroupMove{{At: at, From: 1, To: 2, Groups: 2}}; m.total != 2 || !slices.Equal(m.list, want) {
		t.Errorf("%d, %+v, want %+v", m.total, m.list, want)
	}
	for i := range 3 * movesMax {
		m.note(map[string]uint64{"a": uint64(3 + i%2)}, at.Add(time.Duration(i)))
	}
	if m.total != 2+3*movesMax || len(m.list) != movesMax || !m.list[movesMax-1].At.Equal(at.Add(3*movesMax-1)) {
		t.Errorf("%d, %+v", m.total, m.list)
	}
}
