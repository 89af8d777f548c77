package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/inspect/survey"
)

func busyOf(name string, requests, refused float64) front.BusyTimeline {
	return front.BusyTimeline{Name: name, ID: 7, Group: "eu", TimelineLoad: front.TimelineLoad{Requests: requests, Timestamps: 2 * requests, Refused: refused}}
}

// nodesTold is what four nodes say, of which the third does not permit it and the fourth does not answer.
func nodesTold(limit int) topReport {
	report := &survey.Report{Views: []survey.View{
		{NodeID: 1, State: &survey.State{}}, {NodeID: 2, State: &survey.State{}}, {NodeID: 3, State: &survey.State{}}, {NodeID: 4, Addr: "http://d:1", Error: "refused"},
	}}
	told := []front.BusyTimelines{
		{NodeID: 1, TimelineLoad: front.TimelineLoad{Requests: 100, Timestamps: 200, Refused: 3}, Timelines: []front.BusyTimeline{busyOf("a", 60, 0), busyOf("b", 30, 0)}},
		{NodeID: 2, TimelineLoad: front.TimelineLoad{Requests: 50.5, Timestamps: 101}, Timelines: []front.BusyTimeline{busyOf("c", 10, 100), busyOf("d", 30, 0)}}, {}, {},
	}
	return gatherTop(report, told, []error{nil, nil, errors.New("no right"), nil}, limit)
}

func TestTimelineTop_PutsNodesTogether(t *testing.T) {
	var out bytes.Buffer
	if err := (&timelineTopCmd{}).write(&out, nodesTold(3)); err != nil {
		t.Fatal(err)
	}
	want := `TIMELINE   GROUP   OWNER    REQUESTS/S   TS/S    REFUSED/S
c          eu      node 2   10.0         20.0    100.0
a          eu      node 1   60.0         120.0   0.0
b          eu      node 1   30.0         60.0    0.0
all timelines of 2 nodes: 150.5 requests and 301.0 timestamps a second; 3.0 requests refused by quotas
! node 3 does not tell what it serves, which takes the role admin: no right
! the node at http://d:1 does not answer: what it serves is missing: refused
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	var r topReport
	if err := (&timelineTopCmd{JSON: true}).write(&out, nodesTold(9)); err != nil || json.Unmarshal(out.Bytes(), &r) != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !slices.ContainsFunc(r.Timelines, func(b topTimeline) bool { return b == topTimeline{busyOf("d", 30, 0), 2} }) || r.Nodes != 2 || len(r.Untold) != 2 || r.Requests != 150.5 {
		t.Errorf("%+v", r)
	}
}

func TestTimelineTop_RefusesWhatMakesNoSense(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--limit 0", "--limit 0: want 1 to 1024"}, {"--limit 1025", "--limit"}, {"--interval 1ms", "--interval"}, {"--timeout 0s", "--timeout"}, {"--endpoint node1/path", "node1/path"},
	} {
		if code, _, err := command(append([]string{"timeline", "top", "--once"}, strings.Fields(tc.args)...)...); code != exitUsage || !strings.Contains(err, tc.want) {
			t.Errorf("%s: exit code %d, %q", tc.args, code, err)
		}
	}
	c := newStatusCluster(t, 1) // of an older version
	if code, out, err := command("timeline", "top", "--once", "--endpoint", c.addr(1)); code != exitFailure || out != "" || !strings.Contains(err, "no node tells what it serves: node 1 does not tell") || !strings.Contains(err, "older version") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
}

// TestTimelineTop_ShowsWhatIsServed until it is interrupted.
func TestTimelineTop_ShowsWhatIsServed(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	all := startProcessesWith(t, 3, func(s *config.Settings) { s.Timelines = true })
	all.does(t, "timeline create orders idle", "2 timelines are created")
	all.does(t, "timeline create limited --requests 1", "timeline limited is created")
	at := strings.Join(all.addrs(), ",")
	ask := func() {
		for range 2 {
			_, _, _ = command("timestamp", "--timeline", "orders", "-n", "3", "--endpoint", at)
			_, _, _ = command("timestamp", "--timeline", "limited", "--timeout", "100ms", "--endpoint", at)
		}
	}
	has := func(r topReport, name string, is func(topTimeline) bool) bool {
		return slices.ContainsFunc(r.Timelines, func(b topTimeline) bool {
			return b.Name == name && b.NodeID != 0 && b.Group != "" && b.ID != 0 && is(b)
		})
	}
	await.Until(t, "the table has what is served and refused", func() bool {
		ask()
		var r topReport
		code, out, err := command("timeline", "top", "--once", "--json", "--endpoint", all.addrs()[2])
		if code != 0 || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("exit code %d, %s%s", code, out, err)
		}
		return r.Nodes == 3 && r.Refused > 0 && has(r, "orders", func(b topTimeline) bool { return b.Timestamps > 2*b.Requests }) && has(r, "limited", func(b topTimeline) bool { return b.Refused > 0 }) &&
			!has(r, "idle", func(topTimeline) bool { return true })
	})
	await.Until(t, "documents have the load of timelines, without their names", func() bool {
		ask()
		for _, addr := range all.addrs() {
			text := get(t, "http://"+addr+"/state", "")
			if strings.Contains(text, "orders") {
				t.Fatalf("it has a name: %s", text)
			}
			if strings.Contains(text, `"busiest":[{"id":"`) {
				return true
			}
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &frames{more: make(chan string)}
	ended := make(chan error, 1)
	go func() {
		ended <- (&timelineTopCmd{endpointFlags: endpointFlags{Endpoint: all.addrs()}, Limit: 1, Interval: statusIntervalMin, Timeout: time.Minute}).Run(ctx, console{out, out})
	}()
	for seen := 0; ; {
		select {
		case block := <-out.more:
			if !strings.Contains(block, "TIMELINE") || !strings.Contains(block, "all timelines of 3 nodes") || strings.Contains(block, "\x1b") {
				t.Errorf("%q", block)
			}
			if seen++; seen == 3 {
				cancel()
			}
			continue
		case err := <-ended:
			if err != nil || seen < 3 {
				t.Errorf("interrupted after %d tables: %v", seen, err)
			}
		}
		return
	}
}

// frames passes on what is written.
type frames struct{ more chan string }

func (f *frames) Write(b []byte) (int, error) {
	f.more <- string(b)
	return len(b), nil
}
