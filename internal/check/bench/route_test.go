package bench

import (
	"fmt"
	"testing"
)

func TestRoute(t *testing.T) {
	r := newRoute([]string{"a:1", "b:1"})
	want := func(addr string) {
		t.Helper()
		if got := r.addr(); got != addr {
			t.Fatalf("the route leads to %s, want %s", got, addr)
		}
	}
	want("a:1")
	r.follow("a:1", "c:1", "")
	want("c:1") // a leader that is not a target
	r.follow("a:1", "b:1", "")
	want("c:1") // a late caller: the route has left a already
	r.follow("c:1", "", "")
	want("b:1") // nobody answers: the next one
	r.follow("b:1", "", "")
	want("c:1")
	r.follow("c:1", "c:1", "")
	want("a:1") // a node that redirects to itself is not followed
	r.follow("a:1", "x y\r\n", "")
	want("b:1") // nor is nonsense
	r.confirm("c:1", 1, 1)
	want("c:1")
	for i := range 2 * targetsMax {
		r.follow(r.addr(), fmt.Sprintf("host%d:1", i), "")
	}
	if len(r.addrs) != targetsMax {
		t.Errorf("the route has %d addresses, want at most %d", len(r.addrs), targetsMax)
	}
}

func TestRoute_TellsALeaderThatIsNoTarget(t *testing.T) {
	r := newRoute([]string{"127.0.0.1:1", "b:1"})
	for _, tt := range []struct{ leader, want string }{
		{"b:1", ""},
		{"localhost:1", ""}, // the same as the first
		{"localhost:2", "localhost:2"},
		{"b:2", "b:2"},
	} {
		r.confirm(tt.leader, 0, 0)
		if got := r.elsewhere(); got != tt.want {
			t.Errorf("leader %s: elsewhere is %q, want %q", tt.leader, got, tt.want)
		}
	}
	r.follow("b:2", "", "") // no answer; the next node is not confirmed as the leader
	if got := r.elsewhere(); got != "b:2" {
		t.Errorf("elsewhere is %q", got)
	}
}

func TestRoute_NamesLeadersOnce(t *testing.T) {
	r := newRoute([]string{"a:1"})
	for i := range 3 * turnsMax {
		r.confirm("a:1", Seconds(i), Seconds(i))
		r.confirm("a:1", Seconds(i), Seconds(i))
		r.confirm("b:1", Seconds(i), Seconds(i))
	}
	turns, _ := r.leaders()
	if len(turns) != turnsMax || r.changes != 6*turnsMax || turns[0] != (Turn{0, "a:1"}) || turns[1] != (Turn{0, "b:1"}) {
		t.Errorf("%d turns, %d changes", len(turns), r.changes)
	}
}

func TestRoute_AnAnswerThatIsLateChangesNothing(t *testing.T) {
	r := newRoute([]string{"a:1"})
	r.confirm("a:1", 1, 1)
	r.confirm("b:1", 2, 3)
	r.confirm("a:1", 2.5, 4)
	if r.addr() != "b:1" || len(r.turns) != 2 {
		t.Errorf("asks %s after %v", r.addr(), r.turns)
	}
	if r.confirm("a:1", 3.5, 4); r.addr() != "a:1" || len(r.turns) != 3 {
		t.Errorf("asks %s after %v, though a:1 leads again", r.addr(), r.turns)
	}
}
