package survey_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// TestSurvey_WarnsOfAddresses: members whose record is not what PEERS says, once for all nodes that say
// the same.
func TestSurvey_WarnsOfAddresses(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) {
			s.Interval = nil
			for i := range s.Members {
				if m := &s.Members[i]; m.NodeID == 2 && n.ID != 2 {
					m.PeerAddr, m.OtherAddr = "10.0.0.2:1", "10.0.1.2:1"
				}
			}
		})
	}
	r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
	want := []string{"node 2 is on record at 10.0.0.2:1, and PEERS of node 1, 3 says 10.0.1.2:1: correct PEERS, or the record (isotone member update)"}
	if err := r.Err(); err != nil || !slices.Equal(r.Warnings, want) {
		t.Errorf("%v, %q, want %q", err, r.Warnings, want)
	}
}
