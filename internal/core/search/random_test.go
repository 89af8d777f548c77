package search_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/core/search"
)

// TestSearch_FindsWhoLeads: whatever the nodes have said and done before, and for however long, a client
// asks everybody it knows again, knows what it was given, and follows the first node that says about itself that it leads.
func TestSearch_FindsWhoLeads(t *testing.T) { rapid.Check(t, findsWhoLeads) }

func FuzzSearch(f *testing.F) { f.Fuzz(rapid.MakeFuzz(findsWhoLeads)) }

func findsWhoLeads(t *rapid.T) {
	given := []string{"a", "b"}
	s := search.New(given, func(below time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(below)-1).Draw(t, "jitter"))
	})
	addrs := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	uses := rapid.SampledFrom([]search.Use{search.Stamps, search.Direct, search.Ahead, search.IDs})
	var now time.Duration
	asked := map[string]bool{}
	ask := func() {
		list, wait := s.Ask(now)
		if wait < 0 || wait > search.PauseMax*3/2 {
			t.Fatalf("the next question is after %v", wait)
		}
		for _, addr := range list {
			if asked[addr] {
				t.Fatalf("%s is asked twice at a time", addr)
			}
			asked[addr] = true
		}
	}
	for _, what := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 60).Draw(t, "events") {
		now += time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "time"))
		addr := addrs.Draw(t, "address")
		switch what {
		case 0, 1:
			ask()
		case 2:
			s.Answered(addr)
			delete(asked, addr)
		case 3, 4:
			members := rapid.SliceOfN(addrs, 0, 5).Draw(t, "members")
			slices.Sort(members)
			s.Heard(addr, search.View{Leader: addrs.Draw(t, "leader"), Members: slices.Compact(members)}, now)
		case 5:
			s.Moved(addr, addrs.Draw(t, "leader"), now)
		case 6:
			s.Failed(addr, uses.Draw(t, "use"), s.DialPauseMax(now), now)
		case 7:
			s.Suspect(addr)
		case 8:
			s.Connected()
		case 9:
			s.Reported(addr, rapid.SampledFrom([]search.Outcome{search.Unreachable, search.Ours, search.Foreign, search.Refuses}).Draw(t, "outcome"), now)
		case 10:
			s.Dialed(addr, uses.Draw(t, "use"))
			s.Recovered(addr)
		case 11:
			s.Hurry(uses.Draw(t, "use"), now)
			s.Forget(func(string) bool { return false })
		}
		for _, g := range given {
			if !slices.Contains(s.Known(), g) {
				t.Fatalf("%v, and it was given %s", s.Known(), g)
			}
		}
	}

	// All questions end, no node refuses any more, and the leader is suspected, which it is as soon as it fails.
	for addr := range asked {
		s.Answered(addr)
	}
	clear(asked)
	now += search.RefusedPauseMax*3/2 + search.PauseMax*3/2
	if s.Leader() != "" {
		s.Suspect(s.Leader())
	}
	if s.Suspects() {
		ask()
		for _, addr := range s.Known() {
			if !asked[addr] {
				t.Fatalf("%s is not asked, of %v", addr, s.Known())
			}
		}
	}
	leads := addrs.Draw(t, "leads")
	s.Heard(leads, search.View{Leader: leads, Members: given}, now)
	if s.Suspects() && s.Leader() != leads {
		t.Fatalf("it takes %q for the leader, and %s says that it leads", s.Leader(), leads)
	}
	if wait := s.DialWait(leads, search.Stamps, now); wait > search.RefusedPauseMax*3/2 {
		t.Fatalf("the leader is dialed after %v", wait)
	}
}
