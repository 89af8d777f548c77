package survey_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// clockColumn returns the column CLOCK of a table, by node, and its legend.
func clockColumn(t interface {
	Helper()
	Fatal(...any)
}, r *survey.Report) (column map[string]string, legend string) {
	t.Helper()
	var out strings.Builder
	if err := survey.WriteTable(&out, r); err != nil {
		t.Fatal(err)
	}
	column = map[string]string{}
	at, end := 0, 0
	for line := range strings.Lines(out.String()) {
		cells := []rune(line)
		switch {
		case strings.HasPrefix(line, "NODE"):
			at, end = strings.Index(line, "CLOCK"), strings.Index(line, "TS/S")
		case strings.HasPrefix(line, "CLOCK: "):
			legend = strings.TrimSpace(line)
			at = 0
		case at > 0 && len(cells) > end:
			node, _, _ := strings.Cut(line, " ")
			column[node] = strings.TrimSpace(string(cells[at:end]))
		}
	}
	return column, legend
}

// clusterSeenLate is a cluster whose clocks all agree. Each member sees the others behind,
// because readings take late seconds; so each finds itself ahead.
func clusterSeenLate(voters, learners int, late func(from, to int) float64) *survey.Report {
	r := &survey.Report{Leader: &survey.Leader{NodeID: 1}, Term: 3}
	for i := range voters + learners {
		s := &survey.State{Node: survey.Node{ID: uint64(i + 1), Ready: true}, Clock: survey.Clock{OK: true, OffsetFromMedianSeconds: 1e-4}, Term: 3}
		for j := range voters + learners {
			m := survey.Member{NodeID: uint64(j + 1), Self: i == j, Learner: j >= voters, Connected: true}
			if i != j {
				behind := -late(j, i)
				m.ClockOffsetSeconds = &behind
			}
			s.Members = append(s.Members, m)
		}
		r.Views = append(r.Views, survey.View{NodeID: uint64(i + 1), Addr: fmt.Sprint("http://10.0.0.", i+1, ":8080"), State: s})
	}
	return r
}

func TestTable_ClocksAreNeverAllAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters, learners := rapid.IntRange(2, 7).Draw(t, "voters"), rapid.IntRange(0, 2).Draw(t, "learners")
		delay := rapid.Float64Range(0, 1)
		delays := map[[2]int]float64{}
		r := clusterSeenLate(voters, learners, func(from, to int) float64 {
			key := [2]int{from, to}
			if _, drawn := delays[key]; !drawn {
				delays[key] = delay.Draw(t, "delay")
			}
			return delays[key]
		})
		if rapid.Bool().Draw(t, "the leader is silent") {
			r.Views[0].State = nil
		}
		column, _ := clockColumn(t, r)
		ahead, same := 0, 0
		for id := 1; id <= voters; id++ {
			switch clock := column[fmt.Sprint(id)]; {
			case strings.HasPrefix(clock, "+"):
				ahead++
			case clock == "0 s":
				same++
			}
		}
		if len(column) != voters+learners || ahead == voters || same == 0 {
			t.Fatalf("%d of %d voters are ahead, %d are the reference: %v", ahead, voters, same, column)
		}
	})
}

func TestTable_SaysAgainstWhatClocksAreMeasured(t *testing.T) {
	late := func(int, int) float64 { return 1e-4 }
	r := clusterSeenLate(3, 1, late)
	*r.Views[0].State.Members[2].ClockOffsetSeconds = -2
	*r.Views[0].State.Members[3].ClockOffsetSeconds = 5
	column, legend := clockColumn(t, r)
	if want := map[string]string{"1": "+100 µs", "2": "0 s", "3": "-2.0 s", "4": "+5.0 s"}; fmt.Sprint(column) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", column, want)
	}
	if want := "CLOCK: ahead of (+) or behind (-) the clock that a quorum of the voters reaches, as node 1 sees it"; legend != want {
		t.Errorf("%q, want %q", legend, want)
	}
	r.Views[0].State = nil // the leader is silent
	if _, legend := clockColumn(t, r); !strings.Contains(legend, "as node 2 sees it") {
		t.Errorf("without the leader: %q", legend)
	}

	r = clusterSeenLate(3, 0, late)
	for _, v := range r.Views {
		for i := range v.State.Members {
			v.State.Members[i].ClockOffsetSeconds = nil
		}
	}
	if column, legend := clockColumn(t, r); legend != "" || column["1"] != "-" {
		t.Errorf("with too few clocks: %v, %q", column, legend)
	}

	jump := 3600.0
	r = clusterSeenLate(1, 0, late)
	r.Views[0].State.Clock = survey.Clock{OK: true, SoleVoter: true, OffsetFromQuorumSeconds: &jump}
	if column, legend := clockColumn(t, r); column["1"] != "+1 h" || !strings.Contains(legend, "wall clock of node 1 has jumped") {
		t.Errorf("alone: %v, %q", column, legend)
	}
}
