package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics_PassTheLinter(t *testing.T) {
	m := NewMetrics("v1")
	m.NewRequestStats()
	m.SetNode(NodeStats{
		Peers: []PeerStats{{ID: 2, ClockKnown: true, LagKnown: true}}, ClockQuorumKnown: true,
		Raft: RaftStats{ClusterID: "1"}, Queues: []QueueStats{{Name: "requests", Max: 1}},
	})
	(&Log{lines: &lines{}}).Watch(m.registry)
	WatchConnections(m.registry, 1, 1, func() []Connections { return []Connections{{Protocol: "h3", Refusable: true}} })
	WatchUsers(m.registry, func() []Use { return []Use{{User: "a"}} })
	m.ObserveLiveLoad("a", "ok", 0)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
