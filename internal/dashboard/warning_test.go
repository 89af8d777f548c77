package dashboard_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/dashboard"
)

func TestSummary_WarnsOfClocksThatAreNotBelieved(t *testing.T) {
	const limit = 0.5
	quorum := "the quorum's: timestamps follow the quorum's clock; correct the node's"
	for _, tc := range []struct {
		name  string
		clock dashboard.Clock
		peer  *float64 // node 2's clock minus that of node 1, whose document it is
		want  []string
	}{
		{"nothing is known", dashboard.Clock{Exceeded: true, LimitSeconds: limit}, pointer(7200.0), nil},
		{"all are right", dashboard.Clock{OffsetFromQuorumSeconds: pointer(limit), LimitSeconds: limit}, pointer(-0.7), nil},
		{"its own is ahead", dashboard.Clock{OffsetFromQuorumSeconds: pointer(3599.9999), Exceeded: true, LimitSeconds: limit}, pointer(-3600.0),
			[]string{"node 1's clock is 1 h ahead of " + quorum}},
		{"its own is behind", dashboard.Clock{OffsetFromQuorumSeconds: pointer(-2.53), Exceeded: true, LimitSeconds: limit}, nil,
			[]string{"node 1's clock is 2.5 s behind " + quorum}},
		{"another's is ahead", dashboard.Clock{OffsetFromQuorumSeconds: pointer(-0.1), LimitSeconds: limit}, pointer(90061.1),
			[]string{"node 2's clock is 1 d 1 h ahead of " + quorum}},
		{"without a limit", dashboard.Clock{OffsetFromQuorumSeconds: pointer(0.0)}, pointer(7200.0), nil},
		{"it is the sole voter", dashboard.Clock{OffsetFromQuorumSeconds: pointer(3661.0), Exceeded: true, SoleVoter: true, LimitSeconds: limit}, pointer(-3600.0),
			[]string{"node 1's wall clock has jumped by 1 h 1 min: timestamps follow the steady clock; restart the node if the wall clock is right"}},
		{"it is the sole voter, and its clock in another century", dashboard.Clock{OffsetFromQuorumSeconds: pointer(36525 * 86400.0), Exceeded: true, SoleVoter: true, LimitSeconds: limit}, nil,
			[]string{"node 1's wall clock has jumped by 36525 d: timestamps follow the steady clock; restart the node with CLOCK_JUMP_MAX_MS=0 if the wall clock is right"}},
	} {
		s := reference(t)
		s.Clock, s.Members[1].ClockOffsetSeconds = tc.clock, tc.peer
		var text strings.Builder
		if err := dashboard.WriteSummary(&text, s); err != nil {
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
