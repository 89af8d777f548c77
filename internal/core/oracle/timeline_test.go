package oracle_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
)

// withTimelines returns a state in which a timeline was created at index 7, beside as many as a section of a snapshot does not hold.
func withTimelines(t *testing.T) oracle.State {
	t.Helper()
	s := oracle.State{Level: timeline.Level, ClusterID: 7}
	s.AddMember(oracle.Member{ID: 1, PeerAddr: "10.0.0.1:60001", Session: 0xA1})
	s.Apply(5, oracle.Command{Kind: oracle.KindReserve, Target: 1000, Shared: 1000})
	create := func(index uint64, names ...string) {
		c := timeline.Command{Kind: timeline.KindCreate}
		for _, name := range names {
			c.Creations = append(c.Creations, timeline.Creation{Name: name})
		}
		for _, outcome := range s.Apply(index, oracle.Command{Kind: oracle.KindTimeline, Timeline: c}).Timelines {
			if outcome != timeline.Done {
				t.Fatalf("%d: %v", index, outcome)
			}
		}
	}
	create(7, "orders")
	for i := range uint64(20) {
		var batch []string
		for j := range timeline.CreationsMax {
			batch = append(batch, fmt.Sprintf("tenant-%d/orders-%d", i, j))
		}
		create(8+i, batch...)
	}
	return s
}

func TestState_HasTimelines(t *testing.T) {
	s := withTimelines(t)
	grant := func(index, session uint64) timeline.Refusal {
		return s.Apply(index, oracle.Command{Kind: oracle.KindTimeline, Timeline: timeline.Command{Kind: timeline.KindGrant, Grants: []timeline.Grant{
			{Group: timeline.GroupOf("orders"), Member: 1, Session: session},
		}}}).Timelines[0]
	}
	if got := grant(50, 0xA2); got != timeline.NoMember {
		t.Errorf("granted to a process that is not on record: %v", got)
	}
	if got := grant(51, 0xA1); got != timeline.Done {
		t.Errorf("granted: %v", got)
	}
	have, _ := s.Timelines.Timeline("orders")
	base, ceiling, ok := s.Timelines.Bounds("orders")
	if have.ID != 7 || !ok || base < 1000 || ceiling <= base || s.Ceiling != 1000 {
		t.Errorf("%+v issues from %d to %d, %v; the default order to %d", have, base, ceiling, ok, s.Ceiling)
	}

	b := s.Append(nil)
	again, err := oracle.DecodeState(b)
	if err != nil || again.Digest() != s.Digest() || !bytes.Equal(again.Append(nil), b) || again.Timelines.Len() != s.Timelines.Len() {
		t.Errorf("a snapshot of %d bytes is read as another, with %d timelines: %v", len(b), again.Timelines.Len(), err)
	}
	before := s.Digest()
	s.Apply(52, oracle.Command{Kind: oracle.KindTimeline, Timeline: timeline.Command{Kind: timeline.KindDelete, Name: "orders"}})
	if s.Digest() == before {
		t.Error("the digest does not tell a timeline that was deleted")
	}
}

// TestState_WithoutTimelinesNothingIsWrittenAboutThem: a cluster that never had one has the state of a version that knows none.
func TestState_WithoutTimelinesNothingIsWrittenAboutThem(t *testing.T) {
	deletes := oracle.Command{Kind: oracle.KindTimeline, Timeline: timeline.Command{Kind: timeline.KindDelete, Name: "a"}}
	for _, c := range []struct {
		command oracle.Command
		level   uint64
		ceiling uint64
	}{
		{oracle.Command{Kind: oracle.KindReserve, Target: 1000}, 1, 0},
		{oracle.Command{Kind: oracle.KindReserve, Target: 1000, Shared: 900}, timeline.Level, 900},
		{deletes, timeline.Level, 0},
	} {
		if got := oracle.LevelOf(c.command); got != c.level {
			t.Errorf("%+v needs level %d, want %d", c.command, got, c.level)
		}
		s := oracle.State{Level: timeline.Level}
		s.Apply(5, c.command)
		if s.Timelines.Ceiling != c.ceiling {
			t.Errorf("after %+v timelines have the ceiling %d, want %d", c.command, s.Timelines.Ceiling, c.ceiling)
		}
	}
}

// TestRestored_TimelinesBeginAboveTheFloor (I13).
func TestRestored_TimelinesBeginAboveTheFloor(t *testing.T) {
	s := withTimelines(t)
	restored := oracle.Restored(s, 5000)
	restored.Level = timeline.Level
	if _, _, ok := restored.Timelines.Bounds("orders"); ok {
		t.Error("there are timestamps before the first reservation")
	}
	restored.Apply(1, oracle.Command{Kind: oracle.KindReserve, Target: 9000, Shared: 6000})
	base, _, ok := restored.Timelines.Bounds("orders")
	if !ok || base < 5000 || restored.Timelines.Len() != s.Timelines.Len() {
		t.Errorf("%d timelines, orders from %d on, %v", restored.Timelines.Len(), base, ok)
	}
	for _, level := range []uint64{0, 1, timeline.Level} { // one may have been created after the backup
		later := oracle.Restored(oracle.State{Level: level}, 5000)
		if got := later.Timelines.Ceiling; level < timeline.Level && got != 0 {
			t.Errorf("restored at level %d, there is a ceiling of timelines, %d, which the level does not have", level, got)
		}
		if base := baseOfFirst(later); base < 5000 {
			t.Errorf("restored at level %d, the first timeline begins at %d", level, base)
		}
	}
	if base := baseOfFirst(oracle.State{Level: 1, Ceiling: 5000}); base != 0 {
		t.Errorf("without a restoration the first timeline begins at %d, and not where its clock is", base)
	}
}

// baseOfFirst creates a timeline once the level allows it, and returns its base.
func baseOfFirst(s oracle.State) uint64 {
	s.Apply(1, oracle.Command{Kind: oracle.KindLevel, Level: timeline.Level})
	create := timeline.Command{Kind: timeline.KindCreate, Target: 100, Creations: []timeline.Creation{{Name: "orders"}}}
	s.Apply(2, oracle.Command{Kind: oracle.KindTimeline, Timeline: create})
	base, _, _ := s.Timelines.Bounds("orders")
	return base
}
