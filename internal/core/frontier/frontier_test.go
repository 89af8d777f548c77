package frontier_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
)

func TestFrontier_NothingAtOrBelowIsAccepted(t *testing.T) {
	for seed := range uint64(300) {
		if err := run(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// table returns the table of a leader that has opened at a floor of 100, after the grace.
func table() *frontier.Table {
	l := frontier.New(at(100), 0, time.Second)
	l.Advance(100*time.Millisecond, at(100))
	return l
}

func TestBind_RefusesWhatIsTooMuch(t *testing.T) {
	l := table()
	named := func(n int) (list []frontier.Report) {
		for i := range n {
			list = append(list, frontier.Report{Group: strings.Repeat("x", i+1)})
		}
		return list
	}
	for what, reports := range map[string][]frontier.Report{
		"an empty name": {{}}, "a long name": {{Group: strings.Repeat("x", 129)}}, "a name twice": {{Group: "a"}, {Group: "a"}}, "17 groups": named(17),
	} {
		if err := l.Bind(1, reports); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
		if l.Take(1, "a", at(100), at(100)) {
			t.Errorf("%s: the session has bound", what)
		}
	}
	for s := range frontier.Session(64) {
		if err := l.Bind(s, named(16)); err != nil {
			t.Fatal(err)
		}
	}
	for s := range frontier.Session(1008) {
		if err := l.Bind(1000+s, []frontier.Report{{Group: string(rune('à' + s))}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Bind(1, []frontier.Report{{Group: "one too many"}}); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("1,025 groups: %v", err)
	}
}

func TestSeal_WaitsUntilWritersHaveBound(t *testing.T) {
	if err := sealWhileWritersBind(); err != nil {
		t.Error(err)
	}
}

// sealWhileWritersBind has one writer bind after another, at the beginning of a term: the second one is not to be fenced.
func sealWhileWritersBind() error {
	l := frontier.New(at(100), 0, time.Second)
	first := l.Bind(1, []frontier.Report{{Group: name, Low: at(1)}})
	l.Advance(59*time.Millisecond, at(100))
	if got := l.Seals(); len(got) != 0 {
		return fmt.Errorf("a seal of %v before all had time to bind", got)
	}
	second := l.Bind(2, []frontier.Report{{Group: name, Low: at(90), High: at(95)}})
	l.Advance(60*time.Millisecond, at(100))
	if got := l.Seals(); len(got) != 1 || got[0].Through != at(89) {
		return fmt.Errorf("seals %v; a live session may write from %v on", got, at(90))
	}
	return errors.Join(first, second)
}

// Another session is asked if the first one does not answer.
func TestSeal_AsksInTurn(t *testing.T) {
	l := table()
	for s := frontier.Session(1); s <= 3; s++ {
		if err := l.Bind(s, []frontier.Report{{Group: name, Low: at(1)}}); err != nil {
			t.Fatal(err)
		}
	}
	l.Gone(2)
	asked := map[frontier.Session]int{}
	for i := range 4 {
		l.Advance(time.Duration(200+15*i)*time.Millisecond, at(100))
		for _, s := range l.Seals() {
			asked[s.Session]++
		}
		if got := l.Seals(); len(got) != 0 {
			t.Errorf("%v are asked at once again", got)
		}
	}
	if asked[1] != 2 || asked[3] != 2 || asked[2] != 0 {
		t.Errorf("asked %v", asked)
	}
	if l.Sealed(name, at(50)); l.Frontier(name) != at(50) {
		t.Errorf("after a seal of %v, the frontier is %v", at(50), l.Frontier(name))
	}
	if l.Sealed(name, at(99)); l.Frontier(name) != at(99) {
		t.Errorf("after a seal of %v, the frontier is %v", at(99), l.Frontier(name))
	}
}

// A session that does not decide its lowest stamp holds the frontier for a time that is bounded.
func TestOverdue_FencesWhoHoldsTheFrontier(t *testing.T) {
	l := table()
	if err := l.Bind(1, []frontier.Report{{Group: name, Low: at(1)}}); err != nil {
		t.Fatal(err)
	}
	l.Sealed(name, at(99))
	if !l.Take(1, name, at(100), at(105)) {
		t.Fatal("nothing is issued")
	}
	l.Advance(1100*time.Millisecond, at(110))
	if got := l.Overdue(); len(got) != 0 {
		t.Fatalf("%v are fenced at once", got)
	}
	l.Low(1, name, at(103)) // it goes on
	l.Advance(2100*time.Millisecond, at(110))
	if got := l.Overdue(); len(got) != 0 {
		t.Fatalf("%v are fenced, and have gone on", got)
	}
	l.Advance(2101*time.Millisecond, at(110))
	if got := l.Overdue(); len(got) != 1 || got[0].Session != 1 || got[0].Low != at(103) || got[0].High != at(105) {
		t.Fatalf("fenced: %v", got)
	}
	if got := l.Frontier(name); got != at(102) {
		t.Errorf("the frontier is %v before the stores refuse more", got)
	}
	if got := l.Seals(); len(got) != 1 || got[0].Through != at(105) {
		t.Fatalf("seals %v", got)
	}
	if l.Sealed(name, at(105)); l.Frontier(name) != at(109) {
		t.Errorf("the frontier is %v after the seal", l.Frontier(name))
	}
}

func TestTable_BelievesNoStampThatNobodyHas(t *testing.T) {
	l := frontier.New(isotone.Timestamp{Time: 100}, 0, time.Minute)
	end := isotone.Timestamp{Time: math.MaxUint64}
	if err := l.Bind(1, []frontier.Report{{Group: name, Low: isotone.Timestamp{Time: 5}, High: end}}); err != nil {
		t.Fatal(err)
	}
	l.Doubt(1, name, end)
	l.Sealed(name, isotone.Timestamp{Time: 99, Index: math.MaxUint64})
	l.Low(1, name, isotone.Timestamp{Time: 100})
	l.Advance(0, isotone.Timestamp{Time: 200})
	if f := l.Frontier(name); f.Time != 199 {
		t.Errorf("the frontier is %v, held back by a stamp that was never issued", f)
	}
}

func TestTable_Blockers(t *testing.T) {
	at := func(n uint64) isotone.Timestamp { return isotone.Timestamp{Time: 1, Index: n} }
	table := frontier.New(at(10), 0, time.Minute)
	if got := table.Blockers("g", 9); got != nil {
		t.Errorf("%+v, of a group that is not there", got)
	}
	for s := range frontier.Session(2) {
		if err := table.Bind(s+1, []frontier.Report{{Group: "g", Low: at(1)}}); err != nil {
			t.Fatal(err)
		}
	}
	table.Take(2, "g", at(10), at(11))
	table.Take(1, "g", at(12), at(12))
	table.Gone(1)
	table.Advance(time.Second, at(13))
	want := []frontier.Blocker{
		{Report: frontier.Report{Group: "g", High: at(9)}},
		{Session: 2, Report: frontier.Report{Group: "g", Low: at(10), High: at(11)}, For: time.Second, Connected: true},
		{Session: 1, Report: frontier.Report{Group: "g", Low: at(12), High: at(12)}, For: time.Second},
	}
	if got := table.Blockers("g", 9); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := table.Blockers("g", 1); len(got) != 1 {
		t.Errorf("%d of at most one", len(got))
	}
	if got := table.Groups(); !slices.Equal(got, []string{"g"}) {
		t.Errorf("groups: %q", got)
	}
}

// TestJoin_AddsGroupsAndChangesNoOther.
func TestJoin_AddsGroupsAndChangesNoOther(t *testing.T) {
	l := table()
	if err := l.Bind(1, []frontier.Report{{Group: "a", Low: at(1)}}); err != nil {
		t.Fatal(err)
	}
	l.Sealed("a", at(99))
	l.Take(1, "a", at(100), at(105))
	l.Advance(time.Second, at(106))
	for range 2 {
		if err := l.Join(1, []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if f := l.Frontier("a"); f != at(99) {
		t.Errorf("with stamps from %v on outstanding, the frontier is %v", at(100), f)
	}
	if !l.Take(1, "b", at(106), at(106)) {
		t.Error("the session has not joined")
	}
	l.Sealed("b", at(99))
	l.Advance(time.Second, at(107))
	if f := l.Frontier("b"); f != at(105) {
		t.Errorf("with stamp %v outstanding, the frontier is %v", at(106), f)
	}
	many := make([]string, frontier.SessionGroupsMax)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for what, groups := range map[string][]string{"too many": many, "no name": {""}} {
		if err := l.Join(1, groups); !errors.Is(err, isotone.ErrInvalidArgument) || l.Has(1, groups[0]) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
