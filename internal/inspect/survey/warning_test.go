package survey_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

func TestSummary_WarnsOfClocksThatAreNotBelieved(t *testing.T) {
	const limit = 0.5
	quorum := "the quorum's: timestamps follow the quorum's clock; correct the node's"
	for _, tc := range []struct {
		name  string
		clock survey.Clock
		peer  *float64 // node 2's clock minus that of node 1, whose document it is
		want  []string
	}{
		{"nothing is known", survey.Clock{Exceeded: true, LimitSeconds: limit}, new(7200.0), nil},
		{"all are right", survey.Clock{OffsetFromQuorumSeconds: new(limit), LimitSeconds: limit}, new(-0.7), nil},
		{"its own is ahead", survey.Clock{OffsetFromQuorumSeconds: new(3599.9999), Exceeded: true, LimitSeconds: limit}, new(-3600.0),
			[]string{"node 1's clock is 1 h ahead of " + quorum}},
		{"its own is behind", survey.Clock{OffsetFromQuorumSeconds: new(-2.53), Exceeded: true, LimitSeconds: limit}, nil,
			[]string{"node 1's clock is 2.5 s behind " + quorum}},
		{"another's is ahead", survey.Clock{OffsetFromQuorumSeconds: new(-0.1), LimitSeconds: limit}, new(90061.1),
			[]string{"node 2's clock is 1 d 1 h ahead of " + quorum}},
		{"without a limit", survey.Clock{OffsetFromQuorumSeconds: new(0.0)}, new(7200.0), nil},
		{"it is the sole voter", survey.Clock{OffsetFromQuorumSeconds: new(3661.0), Exceeded: true, SoleVoter: true, LimitSeconds: limit}, new(-3600.0),
			[]string{"node 1's wall clock has jumped by 1 h 1 min: timestamps follow the steady clock; restart the node if the wall clock is right"}},
		{"it is the sole voter, and its clock in another century", survey.Clock{OffsetFromQuorumSeconds: new(36525 * 86400.0), Exceeded: true, SoleVoter: true, LimitSeconds: limit}, nil,
			[]string{"node 1's wall clock has jumped by 36525 d: timestamps follow the steady clock; restart the node with CLOCK_JUMP_MAX_MS=0 if the wall clock is right"}},
	} {
		s := fakecluster.Read(t, "testdata/state.json")
		s.Clock, s.Members[1].ClockOffsetSeconds = tc.clock, tc.peer
		var text strings.Builder
		if err := survey.WriteSummary(&text, s); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(text.String()) {
			if warning, ok := strings.CutPrefix(line, "Warning: "); ok {
				got = append(got, strings.TrimSuffix(warning, "\n"))
			}
		}
		if strings.Join(got, "|") != strings.Join(tc.want, "|") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
