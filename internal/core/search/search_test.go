package search_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/search"
)

const ms = time.Millisecond

var all = []string{"a", "b", "c"}

// full draws the longest jitter, so that a pause is one and a half times as long.
func full(below time.Duration) time.Duration { return below }

// led returns a search whose leader is a, with a connection since now.
func led(now time.Duration) *search.Search {
	s := search.New([]string{"a"}, full)
	s.Heard("a", search.View{Leader: "a", Members: all}, now)
	s.Connected()
	return s
}

func says(leader string) search.View { return search.View{Leader: leader, Members: all} }

// want returns an error unless got is wanted.
func want[T comparable](what string, got, wanted T) error {
	if got != wanted {
		return fmt.Errorf("%s: %v, want %v", what, got, wanted)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// rules are what a client relies on, each with the bug that breaks it, if there is one.
var rules = map[string]struct {
	bug   mutant.Mutant
	check func() error
}{
	"everybody who is known is asked at once, nobody twice": {check: func() error {
		s := search.New([]string{"b", "a"}, full)
		now, wait := s.Ask(5)
		again, rest := s.Ask(5 + wait)
		s.Answered("b")
		after, _ := s.Ask(5 + wait + rest)
		return first(want("at first", fmt.Sprint(now, again, after), "[a b] [] [b]"), want("pause", wait, 3*ms/2), want("next pause", rest, 3*ms))
	}},
	"pauses grow, and are short for the first second": {check: func() error {
		s := search.New([]string{"a"}, full)
		var longest [2]time.Duration
		for now := time.Duration(0); now < 2*search.Eager; {
			_, wait := s.Ask(now)
			late := 0
			if now >= search.Eager {
				late = 1
			}
			longest[late] = max(longest[late], wait)
			now += wait
		}
		return want("longest pauses", longest, [2]time.Duration{12 * ms, 150 * ms})
	}},
	"a leader that fails, refuses or is silent is searched for": {bug: mutant.NeverSuspect, check: func() error {
		s := led(0)
		other := s.Suspect("b")
		quiet, _ := s.Ask(time.Second)
		suspected := s.Suspect("a")
		asked, _ := s.Ask(time.Second)
		return first(want("another node", other, false), want("asked while all is well", len(quiet), 0),
			want("the leader", suspected, true), want("asked", fmt.Sprint(asked), "[a b c]"))
	}},
	"only the leader's own word ends a search for another": {bug: mutant.ConfirmByOthers, check: func() error {
		s := led(0)
		s.Suspect("a")
		return first(want("another's word", s.Heard("b", says("a"), 1), search.Nothing), want("its own", s.Heard("a", says("a"), 1), search.Confirmed))
	}},
	"a leader that has failed leads again by its own word only, for a while": {bug: mutant.ReturnToFailed, check: func() error {
		s := led(0)
		s.Suspect("a")
		successor := s.Heard("b", says("b"), 0)
		s.Connected()
		s.Suspect("b")
		hearsay := s.Heard("c", says("a"), search.PauseMax-1)
		later := s.Heard("c", says("a"), search.PauseMax)
		s = led(0)
		s.Suspect("a")
		s.Heard("b", says("b"), 0)
		s.Connected()
		s.Suspect("b")
		return first(want("the successor", successor, search.Followed), want("another's word", hearsay, search.Nothing), want("later", later, search.Followed),
			want("its own word", s.Heard("a", says("a"), 1), search.Followed))
	}},
	"others' word counts not against a leader that is being connected to, nor for one that cannot be dialed": {check: func() error {
		s := search.New(all, full)
		s.Heard("b", says("a"), 0)
		connecting := s.Heard("c", says("b"), 0)
		s.Failed("a", search.Stamps, search.PauseMax, 0)
		failed := s.Heard("c", says("b"), 0)
		return first(want("while connecting", connecting, search.Nothing), want("after a failure", failed, search.Followed),
			want("back", s.Heard("c", says("a"), 1), search.Nothing))
	}},
	"a redirection of the leader is followed, and no other": {bug: mutant.IgnoreMoved, check: func() error {
		s := led(0)
		other := s.Moved("b", "c", 0)
		moved := s.Moved("a", "c", 0)
		return first(want("by another", other, false), want("by the leader", moved, true), want("leader", s.Leader(), "c"))
	}},
	"redirections in a circle are paced": {bug: mutant.MoveUnpaced, check: func() error {
		s := led(0)
		var waits []time.Duration
		for range 3 {
			s.Moved("a", "b", 0)
			waits = append(waits, s.DialWait("b", search.Stamps, 0))
			s.Moved("b", "a", 0)
			waits = append(waits, s.DialWait("a", search.Stamps, 0))
		}
		s.Recovered("a")
		s.Moved("a", "b", 0)
		return want("waits", fmt.Sprint(append(waits, s.DialWait("b", search.Stamps, 0))), fmt.Sprint([]time.Duration{0, 0, 0, 3 * ms, 6 * ms, 12 * ms, 0}))
	}},
	"the members are those that the leader names, and what others add until then": {bug: mutant.ForgetMembers, check: func() error {
		s := led(0)
		s.Heard("b", search.View{Leader: "a", Members: []string{"b", "d"}}, 0)
		added := fmt.Sprint(s.Members())
		s.Heard("a", search.View{Leader: "a", Members: []string{"a", "d"}}, 0)
		return first(want("added", added, "[a b c d]"), want("replaced", fmt.Sprint(s.Members()), "[a d]"))
	}},
	"who only says that it leads takes no member away": {bug: mutant.BelieveClaims, check: func() error {
		s := led(0)
		s.Suspect("a")
		s.Heard("b", search.View{Leader: "b", Members: []string{"b"}}, 0)
		return want("members", fmt.Sprint(s.Members()), "[a b c]")
	}},
	"an active client asks for the members now and then": {bug: mutant.NeverRefresh, check: func() error {
		s := led(0)
		return first(want("early", s.Refresh(search.RefreshInterval), false), want("in time", s.Refresh(search.RefreshInterval+1), true),
			want("again", s.Refresh(search.RefreshInterval+2), false))
	}},
	"who refuses the client is asked less and less often": {check: func() error {
		s := search.New([]string{"a"}, full)
		s.Reported("a", search.Refuses, 0)
		s.Reported("a", search.Refuses, 1) // at the same time
		early, later := s.Question("a", 3*ms/2-1), s.Question("a", 3*ms/2)
		s.Answered("a")
		s.Reported("a", search.Refuses, 3*ms/2)
		longer := s.Question("a", 4*ms)
		s.Reported("a", search.Ours, 4*ms)
		return first(want("early", early, false), want("later", later, true), want("after two", longer, false), want("accepted", s.Question("a", 4*ms), true))
	}},
	"an address that nobody names is forgotten": {check: func() error {
		s := led(0)
		s.Heard("a", search.View{Leader: "a", Members: []string{"a", "d"}}, 0)
		for _, addr := range []string{"b", "c", "d", "e"} {
			s.Reported(addr, search.Foreign, 0)
		}
		s.Question("c", 0)
		s.Forget(func(addr string) bool { return addr == "e" })
		return want("known", fmt.Sprint(s.Has("b"), s.Has("c"), s.Has("d"), s.Has("e")), "false true true true")
	}},
	"dials are paced for each use, and together when nobody gives IDs": {check: func() error {
		s := led(0)
		for now := time.Duration(0); now < search.Eager; now += 200 * ms {
			s.Failed("b", search.IDs, search.PauseMax, now)
			s.Failed("b", search.IDs, search.PauseMax, now) // at the same time
		}
		long := s.DialWait("b", search.IDs, 800*ms)
		s.Hurry(search.IDs, 800*ms)
		return first(want("for IDs", long, 24*ms), want("for timestamps", s.DialWait("b", search.Stamps, 800*ms) <= 0, true),
			want("in a hurry", s.DialWait("b", search.IDs, 800*ms), 3*ms))
	}},
	"the first request on a connection carries the floor": {bug: mutant.CarryNoFloor, check: func() error {
		low, high := isotone.Timestamp{Time: 1}, isotone.Timestamp{Time: 2}
		none := isotone.Timestamp{}
		return first(want("first", search.Carried(low, none, false), low), want("later", search.Carried(low, none, true), none),
			want("named", search.Carried(low, high, true), high), want("named below", search.Carried(high, low, true), high))
	}},
	"an answer must be above what was received before its request": {bug: mutant.KeepNoFloor, check: func() error {
		var f search.Floor
		at := func(index uint64) isotone.Timestamp { return isotone.Timestamp{Time: 1, Index: index} }
		ok := f.Raise(isotone.Timestamp{}, at(1), at(5))
		overtaken := f.Raise(isotone.Timestamp{}, at(0), at(0))
		return first(want("above", ok, true), want("overtaken", overtaken, true), want("floor", f.Last, at(5)), want("the same again", f.Raise(at(5), at(5), at(6)), false))
	}},
}

func TestRules_AreKept(t *testing.T) {
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if err := rules[rule].check(); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
