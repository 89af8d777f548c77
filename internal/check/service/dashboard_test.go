//go:build linux

package service_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/chromium"
	"github.com/isotone/isotone/internal/check/trial"
)

// browser looks at the dashboard.
var browser chromium.Browser

const (
	// leaderShownMax is how soon the page must show the next leader after a leader was killed.
	leaderShownMax = 15 * time.Second
	// pageTimeout bounds the other waits.
	pageTimeout = time.Minute
)

// Expressions about the page.
const (
	pageLive     = "document.querySelector('#feed').textContent === 'live from 3 of 3'"
	pageHeadline = "document.querySelector('#headline').textContent"
	pageLeader   = "Number(document.documentElement.dataset.leader)"
)

// figure is an expression for the current figure of a chart, NaN while there is none.
func figure(chart string) string {
	return fmt.Sprintf(`parseFloat(document.querySelector("section[aria-labelledby=chart-%s] .value").textContent.replaceAll("\u202f", ""))`, chart)
}

// rowOf is an expression for the text of a node's state in the table of members.
func rowOf(n *chaos.Node) string {
	return fmt.Sprintf("document.querySelector('#members tr:nth-child(%d) .state').textContent", n.ID)
}

// TestDashboard_FollowsTheClusterThroughTheEndOfMembers watches a follower's page while first
// the leader is killed, and then the follower itself.
func TestDashboard_FollowsTheClusterThroughTheEndOfMembers(t *testing.T) {
	tab := browser.Tab(t)
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond})
	leader := c.WaitLeader()
	page := c.Others(leader)[0]
	tab.Open("http://"+page.HTTPAddr+"/", 1280, 800, "light")
	tab.Until(pageTimeout, pageLive+" && "+pageLeader+" === "+fmt.Sprint(leader.ID))
	tab.Until(pageTimeout, figure("timestamps")+" > 100 && "+figure("ids")+" > 100 && "+figure("latency")+" > 0")
	before := tab.Text("section[aria-labelledby=chart-timestamps] .value")
	tab.Until(pageTimeout, fmt.Sprintf("document.querySelector('section[aria-labelledby=chart-timestamps] .value').textContent !== %q", before))
	tab.Until(pageTimeout, "new Set([...document.querySelectorAll('#workers th')].map((e) => e.textContent)).size === 3")

	wantNextLeader(t, tab, leader, leader.Kill)
	tab.Until(pageTimeout, rowOf(leader)+" === 'lost'")
	tab.Until(pageTimeout, "document.querySelectorAll('#elections tr').length >= 2")
	leader.Start()
	c.Settle()
	tab.Until(pageTimeout, pageLive)

	if page == c.WaitLeader() {
		wantNextLeader(t, tab, page, page.Kill)
	} else {
		page.Kill()
	}
	tab.Until(pageTimeout, rowOf(page)+" === 'lost' && document.querySelector('#feed').textContent === 'live from 2 of 3'")
	next := c.WaitLeader()
	tab.Until(pageTimeout, fmt.Sprintf("%s === %d && %s === 'Node %d leads'", pageLeader, next.ID, pageHeadline, next.ID))
	if because, want := tab.Text("#because"), fmt.Sprintf("Node %d is not connected", page.ID); !strings.Contains(because, want) {
		t.Errorf("the page that node %d served says %q, want %q", page.ID, because, want)
	}
	tab.Until(pageTimeout, figure("timestamps")+" > 100")
	if faults, noise := tab.Console(); len(faults) > 0 {
		t.Errorf("the console shows errors: %q; besides failed connections: %q", faults, noise)
	}
	load.End(t, 1000, 0)
}

// wantNextLeader ends a leader, and expects the page to show the next one soon.
func wantNextLeader(t *testing.T, tab *chromium.Tab, leader *chaos.Node, end func()) {
	t.Helper()
	began := time.Now()
	end()
	tab.Until(pageTimeout, fmt.Sprintf("![0, %d].includes(%s) && /^Node \\d leads$/.test(%s)", leader.ID, pageLeader, pageHeadline))
	took := time.Since(began)
	t.Logf("the page shows %q %v after the end of node %d", tab.Text("#headline"), took.Round(time.Millisecond), leader.ID)
	if took > leaderShownMax {
		t.Errorf("the page showed the next leader after %v, want %v at most", took, leaderShownMax)
	}
}

// TestDashboard_IsHTTP2ForABrowser: over TLS the page, all that it loads, and its streams of events share a connection of
// HTTP/2.
func TestDashboard_IsHTTP2ForABrowser(t *testing.T) {
	tab := browser.Tab(t)
	o := trial.Options()
	o.Nodes = 1
	n := chaos.StartCluster(t, o).WaitLeader()
	tab.Command("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil)
	tab.Open("https://"+n.HTTPAddr+"/", 1280, 800, "light")
	tab.Until(pageTimeout, pageLeader+" === "+fmt.Sprint(n.ID))
	// More streams than the six connections that a browser would open of HTTP/1.1.
	tab.Eval(`Promise.all(Array.from({length: 20}, () => new Promise((resolve, reject) => {
		const source = new EventSource("/live/state/stream")
		source.onmessage = (event) => { JSON.parse(event.data); resolve() }
		source.onerror = reject
	}))).then(() => true)`, nil)
	var protocols []string
	tab.Eval(`[...new Set(performance.getEntries().map((e) => e.nextHopProtocol).filter((p) => p !== undefined))]`, &protocols)
	if len(protocols) != 1 || protocols[0] != "h2" {
		t.Errorf("the browser has used %q, want h2", protocols)
	}
	if faults, noise := tab.Console(); len(faults)+len(noise) > 0 {
		t.Errorf("the console shows %q %q", faults, noise)
	}
}

// TestDashboard_IsTextForCurl requests the page of every node in every way but a browser's.
func TestDashboard_IsTextForCurl(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	c := chaos.StartCluster(t, o)
	leader := c.WaitLeader()
	for _, n := range c.Nodes {
		role := "follows"
		if n == leader {
			role = "leads"
		}
		// The text is up to one interval of live documents old.
		self, leads := fmt.Sprintf("node %d at %s %s", n.ID, n.HTTPAddr, role), fmt.Sprintf("leader    node %d at %s", leader.ID, leader.HTTPAddr)
		var text string
		await.Done(t, pageTimeout, func() (bool, string) {
			a := trial.Get(t, n, "/")
			text = string(a.Body)
			return a.Status == 200 && strings.Contains(text, self) && strings.Contains(text, leads), fmt.Sprintf("%d, %q or %q is missing in %q", a.Status, self, leads, text)
		})
		trial.WantWords(t, text, "MEMBER", "isotone status "+leader.HTTPAddr)
		for accept, kind := range map[string]string{"*/*": "text/plain; charset=utf-8", "text/html,*/*;q=0.8": "text/html; charset=utf-8"} {
			a := ask(t, http.MethodHead, "http://"+n.HTTPAddr+"/", http.Header{"Accept": {accept}})
			if a.Status != 200 || a.Header.Get("Content-Type") != kind || len(a.Body) > 0 {
				t.Errorf("HEAD / for %s: %d %v, %d bytes", accept, a.Status, a.Header, len(a.Body))
			}
		}
		if a := ask(t, http.MethodPost, "http://"+n.HTTPAddr+"/", nil); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST /: %d %v", a.Status, a.Header)
		}
	}
}

// TestDashboard_IsLeftOut: without the dashboard, a node still serves what the page would
// read.
func TestDashboard_IsLeftOut(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Nodes, o.Env = 1, map[string]string{"DASHBOARD": "0"}
	n := chaos.StartCluster(t, o).Node(1)
	for _, accept := range []string{"*/*", "text/html"} {
		if a := ask(t, http.MethodGet, "http://"+n.HTTPAddr+"/", http.Header{"Accept": {accept}}); a.Status != 404 || a.Code() != "not_found" {
			t.Errorf("/ for %s: %d %s", accept, a.Status, a.Body)
		}
	}
	await.Done(t, pageTimeout, func() (bool, string) {
		own := "http://" + n.HTTPAddr
		foreign := ask(t, http.MethodGet, own+"/state", http.Header{"Origin": {"http://evil.example"}})
		if foreign.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Fatalf("a page from anywhere may read /state: %v", foreign.Header)
		}
		a := ask(t, http.MethodGet, own+"/state", http.Header{"Origin": {own}})
		return a.Status == 200 && a.Header.Get("Access-Control-Allow-Origin") == own && strings.Contains(string(a.Body), `"role":"leader"`),
			fmt.Sprintf("/state: %d %v %s", a.Status, a.Header, a.Body)
	})
}

// plain speaks HTTP/1.1, and does not request compression by itself.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}, Timeout: trial.AnswerTimeout}

// ask sends one request with a header, and fails the test if there is no answer.
func ask(t *testing.T, method, url string, header http.Header) *chaos.Answer {
	t.Helper()
	return askBy(t, plain, method, url, header)
}

func askBy(t *testing.T, client *http.Client, method, url string, header http.Header) *chaos.Answer {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header.Clone()
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return &chaos.Answer{Status: answer.StatusCode, Header: answer.Header, Body: body}
}
