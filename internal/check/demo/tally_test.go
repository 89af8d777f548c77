package demo

import (
	"errors"
	"testing"
	"time"
)

const ms = time.Millisecond

// steady notes an answer in each of some milliseconds.
func steady(t *tally, from, to int) {
	for at := from; at < to; at++ {
		t.answered(time.Duration(at)*ms-ms/2, time.Duration(at)*ms)
	}
}

func TestTally_MeasuresTheGapOfEachKill(t *testing.T) {
	a := newTally()
	a.leads(1, 30*ms) // known later than the load began
	steady(a, 0, 100)
	a.killed(1, 99*ms+ms/2)
	a.leads(0, 100*ms)
	a.leads(2, 104*ms)
	steady(a, 106, 200)
	a.killed(2, 200*ms)
	a.leads(0, 200*ms)
	var r Result
	a.fill(&r, 260*ms)
	if len(r.Kills) != 2 || len(r.Columns) != 5 {
		t.Fatalf("%+v", r)
	}
	first, second := r.Kills[0], r.Kills[1]
	if first.GapMS != 7 || first.GapAtS != 0.099 || first.Successor != 2 || !first.Closed {
		t.Errorf("the first kill: %+v", first)
	}
	// Nobody has had an answer since the second one, which is seen before it ends.
	if second.GapMS != 61 || second.Successor != 0 || second.Closed {
		t.Errorf("the second kill: %+v", second)
	}
	if len(first.Around) != aroundBefore+200-99 || first.Around[aroundBefore] != 1 || first.Around[aroundBefore+1] != 0 {
		t.Errorf("around the first kill: %v", first.Around)
	}
	if r.Columns[0] != (Column{50, 1}) || r.Columns[2] != (Column{44, 2}) || r.Columns[4] != (Column{0, 0}) {
		t.Errorf("columns: %+v", r.Columns)
	}
	if r.Answers != 194 || r.LongestMS != 61 || r.P50MS != 0.5 {
		t.Errorf("%d answers, longest %v, p50 %v", r.Answers, r.LongestMS, r.P50MS)
	}
	a.end(270 * ms)
	r = Result{}
	a.fill(&r, 270*ms)
	if k := r.Kills[1]; k.GapMS != 71 || !k.Closed {
		t.Errorf("at the end: %+v", k)
	}
}

// TestTally_BlamesNoKillForLaterSilence: what happens more than a second after a kill is not its
// consequence.
func TestTally_BlamesNoKillForLaterSilence(t *testing.T) {
	a := newTally()
	steady(a, 0, 50)
	a.killed(1, 50*ms)
	steady(a, 53, 1100)
	steady(a, 1140, 1200)
	var r Result
	a.fill(&r, 1200*ms)
	if r.Kills[0].GapMS != 4 || r.LongestMS != 41 {
		t.Errorf("of the kill %v ms, longest %v ms", r.Kills[0].GapMS, r.LongestMS)
	}
}

func TestTally_KeepsTheFirstFailures(t *testing.T) {
	a := newTally()
	for range 2 * failuresMax {
		a.failure(errors.New("no leader"))
	}
	var r Result
	a.fill(&r, 50*ms)
	if r.Failed != 2*failuresMax || len(r.Failures) != failuresMax {
		t.Errorf("%d failed, %d kept", r.Failed, len(r.Failures))
	}
}

func TestLeadership_IgnoresTheTermOfALeaderThatWasEnded(t *testing.T) {
	var noted []uint64
	l := leadership{note: func(node uint64) { noted = append(noted, node) }}
	for _, step := range []struct {
		node, term uint64
		want       uint64
	}{{1, 2, 1}, {1, 2, 1}, {3, 1, 1}, {2, 3, 2}} {
		l.led(step.node, step.term)
		if l.known() != step.want {
			t.Errorf("node %d in term %d: %d leads", step.node, step.term, l.known())
		}
	}
	l.lose()
	l.led(2, 3) // an answer that was under way
	if l.known() != 0 {
		t.Error("a leader that was ended leads")
	}
	l.led(1, 4)
	if l.known() != 1 || len(noted) != 4 {
		t.Errorf("%d leads; noted %v", l.known(), noted)
	}
}

// TestTally_ASuccessorHasAnswered: not one that leads and has not answered yet.
func TestTally_ASuccessorHasAnswered(t *testing.T) {
	const ms = time.Millisecond
	y := newTally()
	steps := []struct {
		what string
		do   func()
		want bool
	}{
		{"nobody has ended", func() { y.leads(1, 0) }, true},
		{"the leader ends", func() { y.killed(1, 10*ms) }, false},
		{"it is lost", func() { y.leads(0, 11*ms) }, false},
		{"its last answer", func() { y.answered(9*ms, 12*ms) }, false},
		{"it leads on", func() { y.leads(1, 13*ms) }, false},
		{"another one leads", func() { y.leads(2, 20*ms) }, false},
		{"and answers", func() { y.answered(15*ms, 21*ms) }, true},
	}
	for _, s := range steps {
		if s.do(); y.succeeded() != s.want {
			t.Errorf("%s: a successor has answered: %v", s.what, !s.want)
		}
	}
}
