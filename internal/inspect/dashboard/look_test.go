package dashboard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// narrowest is the width of the smallest phones, in pixels.
const narrowest = 360

func TestPage_FitsEveryWidth(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	withTimelines(c, 1000)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", narrowest, 800, "light")
	b.Until(10*time.Second, pageReady)
	b.Until(10*time.Second, "document.querySelectorAll('#busiest tr').length === 20")
	b.Eval("document.querySelector('#elections-details').open = true", nil)
	for _, width := range []int{narrowest, 390, 620, 621, 800, 861, 1020, 1021, 1280, 1920} {
		b.Resize(width, 800)
		b.Until(5*time.Second, fmt.Sprintf("innerWidth === %d", width))
		var beyond []string
		b.Eval(fmt.Sprintf(`new Promise((done) => requestAnimationFrame(() => setTimeout(() => {
			const wide = [...document.querySelectorAll("body *:not(.hidden):not(.skip)")].filter((e) => e.getBoundingClientRect().right > %[1]d + 0.5);
			const scrolls = document.documentElement.scrollWidth > %[1]d ? ["the page scrolls: " + document.documentElement.scrollWidth] : [];
			done([...scrolls, ...wide.map((e) => e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 40))]);
		}, 50)))`, width), &beyond)
		if len(beyond) > 0 {
			t.Errorf("at %d pixels, beyond the edge: %q", width, beyond)
		}
	}
}

// Labels of elections that follow each other within seconds do not overlap, and the latest one is there.
func TestPage_LabelsOfCloseElectionsDoNotOverlap(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	for _, id := range []uint64{2, 3, 1, 3} {
		c.Elect(id, 10*time.Millisecond)
	}
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, "[...document.querySelectorAll('.plot .leader')].some((e) => e.textContent === 'node 3')")
	var overlap []string
	b.Eval(`[...document.querySelectorAll(".plot")].flatMap((plot) => {
		const boxes = [...plot.querySelectorAll(".leader")].map((e) => e.getBoundingClientRect()).sort((a, b) => a.left - b.left);
		return boxes.slice(1).filter((box, i) => box.left < boxes[i].right).map((box) => box.left + " < " + box.right);
	})`, &overlap)
	if len(overlap) > 0 {
		t.Errorf("labels overlap: %q", overlap)
	}
}

// textsMin is how many texts the page has at least.
const textsMin = 60

func TestPage_IsReadableInLightAndDark(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	for _, n := range c.Nodes {
		n.Change(func(s *survey.State) { // with all that may be wrong
			s.Timelines = fakecluster.Timelines(n.ID, 5)
			s.Timelines.Owners[0].NodeID, s.Timelines.Load.Refused, s.Timelines.Busiest[0].Refused = 0, 9, 9
		})
	}
	b := browser.Tab(t)
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, scheme)
		b.Until(10*time.Second, pageReady+" && document.querySelector('#owners .bad') && document.querySelector('#busiest .refused')")
		var color string
		b.Eval("getComputedStyle(document.body).backgroundColor", &color)
		background[scheme] = color
		// Also with everything that is only shown when something is wrong.
		for _, level := range []string{"ok", "warn", "bad"} {
			b.Eval(fmt.Sprintf("document.documentElement.dataset.level = %q, document.querySelectorAll('#members tr').forEach((row, i) => row.className = ['lead', 'warn', 'bad'][i])", level), nil)
			if seen, poor := b.Contrast(".hidden, .skip, script, noscript"); len(poor) > 0 || seen < textsMin {
				t.Errorf("%s, %s: %d texts, too little contrast: %q", scheme, level, seen, poor)
			}
		}
	}
	if background["light"] == background["dark"] {
		t.Errorf("light and dark have the same background, %s", background["light"])
	}
}

func TestPage_HoldsStillForWhoWantsThat(t *testing.T) {
	c := fakecluster.New(t, 1, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	moving := "document.getAnimations().length > 0"
	b.Until(10*time.Second, moving)
	b.Prefer("prefers-reduced-motion", "reduce")
	b.Until(10*time.Second, "!("+moving+")")
}

func TestPage_IsUsedByKeyboard(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady)
	const focused = `(() => { const e = document.activeElement; return e === document.body ? "body" : (e.getAttribute("aria-labelledby") || e.tagName.toLowerCase()) +
		(getComputedStyle(e).outlineStyle === "none" ? " without a visible focus" : ""); })()`
	var order []string
	for range 7 {
		b.Press("Tab")
		var at string
		b.Eval(focused, &at)
		order = append(order, at)
	}
	if want := strings.Fields("a chart-timestamps chart-latency chart-ids chart-lead summary try-title"); !slices.Equal(order, want) {
		t.Errorf("focus goes %q, want %q", order, want)
	}
	b.Eval("document.querySelector('.plot').focus()", nil)
	text := func() string {
		var s string
		b.Eval("document.querySelector('.plot').getAttribute('aria-valuetext')", &s)
		return strings.ReplaceAll(s, "\u202f", " ")
	}
	if got := text(); !strings.HasPrefix(got, "now: ") {
		t.Errorf("at first: %q", got)
	}
	for _, step := range []struct{ key, want string }{{"ArrowLeft", "1 s ago: "}, {"ArrowLeft", "2 s ago: "}, {"ArrowRight", "1 s ago: "}, {"Home", "4 min 59 s ago: "}, {"End", "now: "}, {"ArrowLeft", "1 s ago: "}} {
		b.Press(step.key)
		b.Until(5*time.Second, fmt.Sprintf("document.querySelector('.plot').getAttribute('aria-valuetext').replaceAll('\\u202f', ' ').startsWith(%q)", step.want))
	}
	// The other charts are read out at the same second.
	var read []string
	b.Eval("[...document.querySelectorAll('.when')].map((e) => e.textContent)", &read)
	if !slices.Equal(read, []string{"0:01 ago", "0:01 ago", "0:01 ago", "0:01 ago"}) {
		t.Errorf("read out: %q", read)
	}
	b.Press("Escape")
	b.Until(5*time.Second, "!document.querySelector('.cursor') && document.querySelector('.when').textContent === ''")
}

func TestPage_IsReadOutAtThePointer(t *testing.T) {
	c := fakecluster.New(t, 1, time.Second, page)
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, "document.querySelector('.line')")
	var box struct{ X, Y, Width, Height float64 }
	b.Eval("document.querySelector('.plot').getBoundingClientRect().toJSON()", &box)
	move := func(x, y float64) {
		b.Command("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": x, "y": y}, nil)
	}
	move(box.X+10, box.Y+box.Height/2)
	b.Until(5*time.Second, "/^4:\\d\\d ago$/.test(document.querySelector('.when').textContent) && document.querySelectorAll('.cursor').length === 4")
	move(box.X+10, 5)
	b.Until(5*time.Second, "!document.querySelector('.cursor')")
}

// axNode is an element of the accessibility tree.
type axNode struct {
	Ignored    bool
	Role, Name struct{ Value any }
	Properties []struct {
		Name  string
		Value struct{ Value any }
	}
}

func (n axNode) property(name string) any {
	for _, p := range n.Properties {
		if p.Name == name {
			return p.Value.Value
		}
	}
	return nil
}

func TestPage_TellsAssistiveTechnologyWhatIsThere(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, page)
	withTimelines(c, 3)
	c.Nodes[0].Change(func(s *survey.State) {
		s.Timelines = fakecluster.Timelines(1, 3)
		s.Locks = &survey.Locks{Sessions: 1, Held: 1, Longest: []survey.HeldLock{{Token: "7", Session: "00000000000000ff", Seconds: 61}}}
	})
	b := browser.Tab(t)
	b.Open("http://"+c.Nodes[0].Addr+"/", 1280, 800, "light")
	b.Until(10*time.Second, pageReady+" && document.querySelector('#busiest tr')")
	b.Eval("document.querySelector('#elections-details').open = true", nil)
	var tree struct{ Nodes []axNode }
	b.Command("Accessibility.getFullAXTree", nil, &tree)
	names := map[string][]string{}
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if n.Ignored {
			continue
		}
		if slices.Contains(strings.Fields("heading slider table link columnheader rowheader region"), role) && name == "" {
			raw, _ := json.Marshal(n)
			t.Errorf("a %s without a name: %s", role, raw)
		}
		if role == "heading" {
			name = fmt.Sprintf("%v %s", n.property("level"), name)
		}
		if role == "status" {
			name = fmt.Sprint(n.property("live"))
		}
		names[role] = append(names[role], name)
	}
	for role, want := range map[string][]string{
		"banner": {""}, "main": {""}, "contentinfo": {""},
		"status": {"polite"},
		"heading": {"1 Isotone", "2 State of the cluster", "2 Timestamps per second", "2 Latency", "2 IDs per second", "2 Lead over clock",
			"2 Members", "2 Leadership", "2 Clock, time and ceiling", "2 Worker leases", "2 Commands to try", "2 Timelines", "2 Busiest timelines", "2 Locks and frontiers"},
		"slider": {"Timestamps per second", "Latency", "IDs per second", "Lead over clock"},
	} {
		slices.Sort(want) // the tree does not have the order of the page
		slices.Sort(names[role])
		if !slices.Equal(names[role], want) {
			t.Errorf("%s: %q, want %q", role, names[role], want)
		}
	}
	if len(names["table"]) != 6 {
		t.Errorf("tables: %q", names["table"])
	}
	for _, want := range []string{"Node", "State", "Lag, entries", "Clock offset", "p99", "When", "Gap", "Worker", "Owner", "Groups", "Requests/s", "ID", "Held for"} {
		if !slices.Contains(names["columnheader"], want) {
			t.Errorf("no column is headed %q: %q", want, names["columnheader"])
		}
	}
}
