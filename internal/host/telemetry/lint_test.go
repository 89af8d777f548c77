package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics_PassTheLinter(t *testing.T) {
	m := NewMetrics("v1")
	m.NewRequestStats()
	m.SetNode(NodeStats{Peers: []PeerStats{{ID: 2}}})
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
