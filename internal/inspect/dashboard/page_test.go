package dashboard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chromium"
	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// These tests check the page in a real browser; without one they are skipped. The figures
// come from a fake cluster.

// pageReady is true when the page shows all members.
const pageReady = "document.querySelector('#feed').textContent === 'live from 3 of 3' && document.documentElement.dataset.level === 'ok'"

// quiet fails the test if the console shows errors of the page, or more than noiseMax failed
// requests.
func quiet(t *testing.T, b *chromium.Tab, noiseMax int) {
	t.Helper()
	faults, noise := b.Console()
	if len(faults) > 0 {
		t.Errorf("the console shows errors:\n%s", strings.Join(faults, "\n"))
	}
	if len(noise) > noiseMax {
		t.Errorf("%d failed requests, want at most %d:\n%s", len(noise), noiseMax, strings.Join(noise, "\n"))
	}
}

func TestPage_ShowsTheClusterLive(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[1].Addr+"/", 1280, 800, "light") // a follower
	b.Until(10*time.Second, pageReady)
	for selector, want := range map[string]string{
		"#headline":                       "Node 1 leads",
		"#because":                        "All 3 members are connected.",
		"title":                           "Node 1 leads · Isotone",
		"#facts div:nth-child(1) dd":      "7",
		"#facts div:nth-child(2) dd":      "quorum",
		"#facts div:nth-child(6) dd":      "v0.9.0",
		"#members tr:nth-child(1) .id":    "1",
		"#members tr:nth-child(1) .state": "leads",
		"#members tr:nth-child(3) .addr":  c.Nodes[2].Addr,
		"#members tr:nth-child(3) .state": "follows",
		"#elections tr:nth-child(1)":      "node 1",
		"#workers tr:nth-child(2)":        "Node 2",
		"#lanes-text":                     "node 1 leader in term 7",
		"#ruler-text":                     "more is reserved",
		"#try":                            "curl '" + c.Nodes[0].Addr + "/timestamp?format=json'",
	} {
		if got := b.Text(selector); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	for _, chart := range []string{"timestamps", "latency", "ids", "lead"} {
		var figure string
		b.Eval(fmt.Sprintf("document.querySelector('[aria-labelledby=chart-%s] .value').textContent", chart), &figure)
		var points int
		b.Eval(fmt.Sprintf("document.querySelector('section[aria-labelledby=chart-%s] .line').getAttribute('d').split('L').length", chart), &points)
		if strings.Trim(figure, "–") == "" || points < 250 {
			t.Errorf("%s: figure %q, a line of %d points", chart, figure, points)
		}
	}
	if text := b.Text("#moved"); text != "" {
		t.Errorf("nobody has moved time: %q", text)
	}
	c.Nodes[2].Change(func(s *survey.State) { s.LastMove = &survey.Move{At: time.Now().Add(-time.Minute), AheadSeconds: 5} })
	b.Until(10*time.Second, "/^A client moved time 5.0.s ahead of the clock, 1.min.* ago; the log says who/.test(document.querySelector('#moved').textContent)")
	before := b.Text(".value")
	b.Until(10*time.Second, fmt.Sprintf("document.querySelector('.value').textContent !== %q", before))
	quiet(t, b, 0)
	for _, node := range c.Nodes {
		if n := node.Streams(); n != 1 {
			t.Errorf("node %d has %d streams open, want 1", node.ID, n)
		}
	}
}

// withTimelines has each node tell of timelines, of which it serves some.
func withTimelines(c *fakecluster.Cluster, busy int) {
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) { s.Timelines = fakecluster.Timelines(n.ID, busy) })
	}
}

// rowsOf returns the texts of the cells of a table's body, without the thin spaces in numbers.
func rowsOf(b *chromium.Tab, body string) (rows []string) {
	b.Eval(fmt.Sprintf(`[...document.querySelectorAll("#%s tr")].map((row) => [...row.children].map((e) => e.textContent.replaceAll("\u202f", "")).join(" | "))`, body), &rows)
	return rows
}

func TestPage_ShowsLocksOfAClusterThatHasSome(t *testing.T) {
	c := fakecluster.New(t, 3, 100*time.Millisecond, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[1].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	const hidden = "document.querySelector('#locks').hidden"
	b.Until(10*time.Second, hidden)
	c.Nodes[0].Change(func(s *survey.State) {
		s.Locks = &survey.Locks{Sessions: 5, Held: 1, Waiting: 2, Groups: 2, LagSeconds: 0.0021, Longest: []survey.HeldLock{{Token: "470780841959217570", Session: "00000000000000ff", Seconds: 61}}}
	})
	b.Until(10*time.Second, "!"+hidden)
	text := strings.ReplaceAll(b.Text("#locks-text"), "\u202f", " ")
	if want := "1 lock is held, 2 requests wait, 5 sessions. 2 groups of writers, whose frontier is 2.10 ms behind at most. isotone locks list has their names, for operators."; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if got, want := rowsOf(b, "longest"), []string{"61.0s | 470780841959217570 | 00000000000000ff"}; !slices.Equal(got, want) {
		t.Errorf("the longest: %q, want %q", got, want)
	}
	c.Nodes[0].Change(func(s *survey.State) { s.Locks = nil })
	b.Until(10*time.Second, hidden)
}

func TestPage_ShowsTimelinesOfAClusterThatHasSome(t *testing.T) {
	c := fakecluster.New(t, 3, 100*time.Millisecond, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[1].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	const hidden = "document.querySelector('#timelines').hidden"
	b.Until(10*time.Second, hidden)
	for _, n := range c.Nodes { // permitted, and none is there
		n.Change(func(s *survey.State) {
			s.Version, s.Timelines = "v1.0.0", &survey.Timelines{Permitted: true, Owners: []survey.GroupOwner{}}
		})
	}
	b.Until(10*time.Second, "document.querySelector('#facts').textContent.includes('v1.0.0')")
	b.Until(10*time.Second, hidden)

	withTimelines(c, 3)
	b.Until(10*time.Second, "!"+hidden+" && document.querySelectorAll('#busiest tr').length === 9")
	text := strings.ReplaceAll(b.Text("#timelines-text"), "\u202f", " ")
	for _, want := range []string{"1 234 timelines in 11 groups. 3 moves of groups, the latest 1 min ", " ago: 2 groups from node 2 to node 3."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
	if got, want := rowsOf(b, "owners"), []string{"Node 1 | 4 | 400 | 100 | 200 | 0", "Node 2 | 3 | 334 | 200 | 400 | 0", "Node 3 | 4 | 500 | 300 | 600 | 0"}; !slices.Equal(got, want) {
		t.Errorf("owners: %q, want %q", got, want)
	}
	if got, want := rowsOf(b, "busiest")[:4], []string{"3000 | Node 3 | 150 | 300 | 0", "2000 | Node 2 | 100 | 200 | 0", "3001 | Node 3 | 75 | 150 | 0", "3002 | Node 3 | 75 | 150 | 0"}; !slices.Equal(got, want) {
		t.Errorf("the busiest: %q, want %q", got, want)
	}

	withTimelines(c, 1000)
	b.Until(10*time.Second, "document.querySelectorAll('#busiest tr').length === 20") // of 60
	c.Nodes[0].Change(func(s *survey.State) {
		s.Timelines = fakecluster.Timelines(1, 1)
		s.Timelines.Owners[0], s.Timelines.Busiest[0].Refused = survey.GroupOwner{Groups: 1, Timelines: 9}, 7000
		s.Timelines.Load.Refused = 7000
	})
	b.Until(10*time.Second, "document.querySelector('#timelines-text').textContent.includes('1 group has no owner.') && document.querySelector('#owners .bad')")
	if got, want := rowsOf(b, "owners")[:2], []string{"No owner | 1 | 9 | – | – | –", "Node 1 | 0 | 0 | 100 | 200 | 7000"}; !slices.Equal(got, want) {
		t.Errorf("owners: %q, want %q", got, want)
	}
	if got, want := rowsOf(b, "busiest")[0], "1000 | Node 1 | 50 | 100 | 7000"; got != want {
		t.Errorf("what is refused counts: %q, want %q", got, want)
	}
	for _, n := range c.Nodes {
		n.Change(func(*survey.State) {})
	}
	b.Until(10*time.Second, hidden)
	quiet(t, b, 0)
}

// TestPage_ShowsTheNextLeaderWithin3Seconds kills the leader, which is also the node that
// served the page.
func TestPage_ShowsTheNextLeaderWithin3Seconds(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	begin := time.Now()
	c.Nodes[0].Kill()
	b.Until(3*time.Second, "['Node 1 stopped answering', 'No leader'].includes(document.querySelector('#headline').textContent)")
	told := time.Since(begin)
	c.Elect(2, 310*time.Millisecond)
	b.Until(3*time.Second-time.Since(begin), "document.querySelector('#headline').textContent === 'Node 2 leads' && document.documentElement.dataset.leader === '2'")
	t.Logf("the page showed the loss of the leader after %v, and the next leader after %v", told, time.Since(begin))
	if got, want := b.Text("#because"), "It took over from node 1 after 310 ms without a leader."; !strings.Contains(strings.ReplaceAll(got, "\u202f", " "), want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := b.Text("#members tr:nth-child(1) .state"); got != "lost" {
		t.Errorf("node 1 is shown as %q", got)
	}
	var kept int
	b.Eval("document.querySelector('.line.edge').getAttribute('d').split('L').length", &kept) // latency, which only leaders have
	if kept < 250 {
		t.Errorf("%d points are left of the history of the killed node", kept)
	}
	quiet(t, b, 6) // broken streams, and few probes
	c.Nodes[0].Restart(t)
	b.Until(20*time.Second, pageReady)
	if got := b.Text("#headline"); got != "Node 2 leads" {
		t.Errorf("%q after node 1 came back", got)
	}
	quiet(t, b, 8)
}

func TestPage_ComesBackAfterAllMembersWereGone(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[2].Addr+"/", 390, 844, "dark")
	b.Until(10*time.Second, pageReady)
	for _, node := range c.Nodes {
		node.Kill()
	}
	b.Until(10*time.Second, "document.querySelector('#headline').textContent === 'No member answers' && document.documentElement.classList.contains('stale')")
	for _, node := range c.Nodes {
		node.Restart(t)
	}
	c.Elect(3, 2*time.Second)
	b.Until(30*time.Second, pageReady)
	if got := b.Text("#headline"); got != "Node 3 leads" {
		t.Errorf("headline %q", got)
	}
	quiet(t, b, 40)
}

func TestPage_PollsWhereStreamsDoNotComeThrough(t *testing.T) {
	c := fakecluster.New(t, 1, time.Second, page)
	c.Nodes[0].RefuseStreams()
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, "document.querySelector('#feed').textContent === 'live from 1 of 1, polled'")
	before := c.Nodes[0].Requests("/state")
	b.Until(10*time.Second, "document.querySelector('#because').textContent.includes('only voter')")
	await.Until(t, "the page polls", func() bool { return c.Nodes[0].Requests("/state") >= before+2 })
	if n := c.Nodes[0].Requests("/live/state/stream"); n != 1 {
		t.Errorf("%d streams were requested, want 1", n)
	}
}

func TestPage_SaysWhatIsWrong(t *testing.T) {
	c := fakecluster.New(t, 3, 100*time.Millisecond, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	nothing := func(*survey.State) {}
	for _, tc := range []struct {
		name             string
		node             int
		edit             func(*survey.State)
		level, headline  string
		because, inTable string
	}{
		{"a clock is wrong", 2, func(s *survey.State) { s.Clock = survey.Clock{OffsetFromMedianSeconds: 2.5} },
			"warn", "Node 1 leads", "The clock of node 3 is wrong.", "+2.5\u202fs"},
		{"a clock beyond the limit", 2, func(s *survey.State) {
			s.Clock.OffsetFromQuorumSeconds, s.Clock.Exceeded, s.Clock.LimitSeconds = new(-3600.0), true, 0.5
		}, "warn", "Node 1 leads", "The clock of node 3 is 1\u202fh behind the quorum's: timestamps follow the quorum's clock. Correct the node's.", "follows"},
		{"the leader's clock beyond the limit", 0, func(s *survey.State) {
			s.Clock.OffsetFromQuorumSeconds, s.Clock.Exceeded, s.Clock.LimitSeconds = new(3600.0), true, 0.5
			s.Epoch.LeadSeconds -= 3600
		}, "warn", "Node 1 leads", "The clock of node 1 is 1\u202fh ahead of the quorum's: timestamps follow the quorum's clock. Correct the node's.", "leads"},
		{"a member is not ready", 1, func(s *survey.State) { s.Node.Ready, s.Node.NotReady = false, "it joins" },
			"warn", "Node 1 leads", "Node 2 is not ready: it joins.", "not ready"},
		{"a member is disconnected", 0, func(s *survey.State) { s.Members[2].Connected = false },
			"warn", "Node 1 leads", "Node 3 is not connected; one more failure stops the cluster.", "disconnected"},
		{"time stands still", 0, func(s *survey.State) { s.Epoch.LeadSeconds = -4 },
			"warn", "Node 1 leads", "Time stands still: node 1 cannot raise the ceiling.", "leads"},
		{"a text that looks like HTML", 1, func(s *survey.State) { s.Node.Ready, s.Node.NotReady = false, "<img src=x onerror=alert(1)>" },
			"warn", "Node 1 leads", "<img src=x onerror=alert(1)>", "not ready"},
		{"a member that lags", 0, func(s *survey.State) { *s.Members[1].LagEntries = 12345 },
			"ok", "Node 1 leads", "All 3 members are connected.", "12\u202f345"},
	} {
		c.Nodes[tc.node].Change(tc.edit)
		b.Until(10*time.Second, fmt.Sprintf("document.querySelector('#because').textContent.includes(%q) && document.querySelector('#members').textContent.includes(%q)", tc.because, tc.inTable))
		var level string
		b.Eval("document.documentElement.dataset.level", &level)
		if got := b.Text("#headline"); got != tc.headline || level != tc.level {
			t.Errorf("%s: %s %q, want %s %q", tc.name, level, got, tc.level, tc.headline)
		}
		c.Nodes[tc.node].Change(nothing)
		b.Until(10*time.Second, pageReady)
	}
	quiet(t, b, 0)
}

func TestPage_SaysWhatAClusterWaitsForThatIsBeingFormed(t *testing.T) {
	c := fakecluster.New(t, 3, 100*time.Millisecond, page)
	c.Elect(0, 0)
	c.Nodes[2].Kill()
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) {
			s.Node.Forming, s.Node.Role, s.Node.NotReady = true, "follower", "the cluster is being formed, which needs node 3"
			for i := range s.Members {
				if !s.Members[i].Self {
					s.Members[i].Addr = "" // not known yet
				}
			}
		})
	}
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, "document.querySelector('#headline').textContent === 'The cluster is being formed' && document.documentElement.dataset.level === 'wait'")
	for selector, want := range map[string]string{
		"#because":                        "The cluster is being formed, which needs node 3.",
		"#members tr:nth-child(1) .state": "not ready",
		"#members tr:nth-child(2) .state": "reached",
		"#members tr:nth-child(3) .state": "not reached",
	} {
		if got := b.Text(selector); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	quiet(t, b, 0)
}

// TestPage_IgnoresALeaderOfAnOlderTerm: a leader that was cut off still claims to lead.
func TestPage_IgnoresALeaderOfAnOlderTerm(t *testing.T) {
	c := fakecluster.New(t, 3, 100*time.Millisecond, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	old := c.Nodes[0].State()
	c.Nodes[0].Change(func(s *survey.State) { now := s.Now; *s = *old; s.Now = now })
	c.Elect(3, time.Second)
	b.Until(10*time.Second, "document.querySelector('#headline').textContent === 'Node 3 leads'")
	var states []string
	b.Eval("[...document.querySelectorAll('#members tr.lead .id')].map((e) => e.textContent)", &states)
	if !slices.Equal(states, []string{"3"}) {
		t.Errorf("leaders in the table: %q", states)
	}
}
