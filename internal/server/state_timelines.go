package server

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// timelineSource is what a node tells of timelines, from one document to the next.
type timelineSource struct {
	permitted, spread bool // TIMELINES, GROUP_PLACEMENT
	busy              func(limit int) (front.BusyTimelines, error)
	moves             groupMoves
}

// describe returns what the node tells of timelines, without their names and those of groups, or nil if there are none.
func (s *timelineSource) describe(records []front.GroupRecord, now time.Time) *survey.Timelines {
	t := &survey.Timelines{Permitted: s.permitted, Placement: "leader", Owners: []survey.GroupOwner{}, Busiest: []survey.BusyTimeline{}, LastMoves: []survey.GroupMove{}}
	if s.spread {
		t.Placement = "spread"
	}
	groups, of := map[string]uint64{}, map[uint64]survey.GroupOwner{}
	for _, g := range records {
		t.Total += g.Timelines
		if g.Made {
			t.GroupsMade++
		}
		if g.Timelines > 0 {
			groups[g.Name] = g.NodeID
			of[g.NodeID] = survey.GroupOwner{NodeID: g.NodeID, Groups: of[g.NodeID].Groups + 1, Timelines: of[g.NodeID].Timelines + g.Timelines}
		}
	}
	s.moves.note(groups, now)
	if !t.Permitted && t.Total == 0 {
		return nil
	}
	t.Moves, t.LastMoves = s.moves.total, append(t.LastMoves, s.moves.list...)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		t.Owners = append(t.Owners, of[id])
	}
	if t.Total == 0 {
		return t
	}
	busy, _ := s.busy(survey.BusiestMax) // nothing, while the node stops
	t.Load = survey.TimelineLoad(busy.TimelineLoad)
	for _, b := range busy.Timelines {
		t.Busiest = append(t.Busiest, survey.BusyTimeline{ID: b.ID, TimelineLoad: survey.TimelineLoad(b.TimelineLoad)})
	}
	return t
}

// movesMax bounds the moves of groups that a node remembers.
const movesMax = 16

// groupMoves compares the owners of groups from one document to the next: a group that comes and goes between two has not moved.
type groupMoves struct {
	owners map[string]uint64 // nodes by group with timelines, as of the latest document
	total  uint64
	list   []survey.GroupMove // the latest, oldest first
}

// note takes in who owns groups now.
func (m *groupMoves) note(owners map[string]uint64, at time.Time) {
	type pair struct{ from, to uint64 }
	moved := map[pair]int{}
	for name, to := range owners {
		if from := m.owners[name]; from != 0 && to != 0 && from != to {
			moved[pair{from, to}]++
		}
	}
	m.owners = owners
	for _, p := range slices.SortedFunc(maps.Keys(moved), func(a, b pair) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }) {
		m.total += uint64(moved[p])
		m.list = append(m.list, survey.GroupMove{At: at.UTC(), From: p.from, To: p.to, Groups: moved[p]})
	}
	m.list = slices.Delete(m.list, 0, max(0, len(m.list)-movesMax))
}
