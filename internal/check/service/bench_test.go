//go:build linux

package service_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestBench_OutageOfARealCluster is the whole thing: three processes, each protocol, a
// leader that is killed, and every answer checked.
func TestBench_OutageOfARealCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	c := chaos.StartCluster(t, trial.Options())
	c.Settle()
	load := func(args string) (r bench.Result) {
		t.Helper()
		all := "bench -c 8 --timeout 1s --json - -t " + strings.Join(c.Addrs(), ",") + " " + args
		code, out, text := trial.Command(t, append(strings.Fields(all), "--violations", filepath.Join(t.TempDir(), "violations"))...)
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || !r.Verdict.OK || r.Verdict.Unverified > 0 {
			t.Fatalf("%s: exit code %d, %v\n%s", args, code, err, text)
		}
		t.Logf("%s\n%s", args, text)
		return r
	}
	for _, protocol := range []string{"http1", "resp", "h2c", "h2", "h3"} {
		r := load("--insecure -P 2 -n 3 --requests 500 -p " + protocol)
		if r.Result.Answers < 10 || r.Result.Errors["malformed"] > 0 {
			t.Errorf("%s: %d answers, errors %v", protocol, r.Result.Answers, r.Result.Errors)
		}
	}

	for _, protocol := range []string{"http1", "resp"} {
		// A leader that is stopped is missed after 100 ms; one that was killed, sooner than the eye of
		// this test sees.
		loaded, stopped := issued(c)+30, make(chan *chaos.Node, 1)
		ended := make(chan struct{})
		go func() { stopped <- stopLeader(c, loaded, ended) }()
		r := load("--rate 100 -d 3s -P 2 -p " + protocol)
		close(ended)
		leader := <-stopped
		if leader == nil {
			t.Fatalf("%s: the load ended without 30 timestamps, or without a leader that could be stopped", protocol)
		}
		if r.Result.Answers+r.Result.Errors["unanswered"] != 300 {
			t.Errorf("%s: %d of 300 arrivals were answered, errors %v", protocol, r.Result.Answers, r.Result.Errors)
		}
		if gap := r.Result.LongestGap.Length; gap < 0.05 || r.Result.Latency.Max < float64(gap)*0.9e6 {
			t.Errorf("%s: the outage does not show: gap %v s, slowest answer %v µs", protocol, gap, r.Result.Latency.Max)
		}
		if len(r.Result.Leaders) < 2 {
			t.Errorf("%s: leaders %v", protocol, r.Result.Leaders)
		}
		leader.Cont()
		c.Settle()
	}
}

// issued returns how many timestamps the nodes have issued, those that do not answer aside.
func issued(c *chaos.Cluster) (sum float64) {
	for _, n := range c.Nodes {
		count, _ := chaos.Metric(n.HTTPAddr, "isotone_timestamps_total") // 0 after an error
		sum += count
	}
	return sum
}

// stopLeader stops whoever leads once the nodes have issued so many timestamps, and returns it; nil if the load
// has ended before.
func stopLeader(c *chaos.Cluster, timestamps float64, ended <-chan struct{}) *chaos.Node {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-poll.C:
			if leader := c.Leader(); leader != nil && issued(c) >= timestamps {
				leader.Stop()
				return leader
			}
		}
	}
}
