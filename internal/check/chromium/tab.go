package chromium

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Tab is one tab, with its own cookies and cache, and a record of its console. Its methods
// fail the test if the browser reports an error.
type Tab struct {
	t       testing.TB
	p       *process
	session string
	faults  []string // errors of the page itself; guarded by p.mu, like noise
	noise   []string // failed requests
	asked   []string // URLs of all requests
}

// Tab opens a tab, and closes it at the end of the test. It skips the test if there is no
// browser, and with -short.
func (b *Browser) Tab(t testing.TB) *Tab {
	t.Helper()
	tab := &Tab{t: t, p: b.get(t)}
	var context struct{ BrowserContextID string }
	tab.Command("Target.createBrowserContext", nil, &context)
	var target struct{ TargetID, SessionID string }
	tab.Command("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context.BrowserContextID}, &target)
	tab.Command("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	tab.session = target.SessionID
	tab.p.mu.Lock()
	tab.p.tabs[tab.session] = tab
	tab.p.mu.Unlock()
	t.Cleanup(func() {
		tab.p.mu.Lock()
		delete(tab.p.tabs, tab.session)
		tab.p.mu.Unlock()
		if _, err := tab.p.command("", "Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID}); err != nil {
			t.Errorf("closing the tab: %v", err)
		}
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility", "Network"} {
		tab.Command(domain+".enable", nil, nil)
	}
	return tab
}

// notice records what the console shows, and requests. The caller holds p.mu.
func (tab *Tab) notice(method string, params json.RawMessage) {
	switch method {
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Source, Level, Text, URL string }
		}
		_ = json.Unmarshal(params, &p)
		text := p.Entry.Text + " " + p.Entry.URL
		if p.Entry.Source == "network" && strings.Contains(p.Entry.Text, "net::ERR_") {
			tab.noise = append(tab.noise, text)
		} else if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			tab.faults = append(tab.faults, text)
		}
	case "Network.requestWillBeSent":
		var p struct {
			Request struct{ URL string }
		}
		_ = json.Unmarshal(params, &p)
		tab.asked = append(tab.asked, p.Request.URL)
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
		tab.faults = append(tab.faults, method+" "+string(params))
	}
}

// Console returns what the console has shown: faults of the page, and noise, which is failed
// requests: a page cannot keep those out of the console.
func (tab *Tab) Console() (faults, noise []string) {
	tab.p.mu.Lock()
	defer tab.p.mu.Unlock()
	return append([]string(nil), tab.faults...), append([]string(nil), tab.noise...)
}

// Requests returns the URLs that the tab has requested so far, in that order. Those of workers are
// missing.
func (tab *Tab) Requests() []string {
	tab.p.mu.Lock()
	defer tab.p.mu.Unlock()
	return append([]string(nil), tab.asked...)
}

// Command executes one command of the protocol and decodes its result, unless result is nil.
func (tab *Tab) Command(method string, params map[string]any, result any) {
	tab.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	text, err := tab.p.command(tab.session, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		tab.t.Fatalf("%s: %v", method, err)
	}
}

// Eval evaluates an expression in the page and decodes its value, unless value is nil. It
// waits for promises.
func (tab *Tab) Eval(expression string, value any) {
	tab.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	tab.Command("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result)
	if result.ExceptionDetails != nil {
		tab.t.Fatalf("%s: %s", expression, result.ExceptionDetails.Exception.Description)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(result.Result.Value, value); err != nil {
		tab.t.Fatalf("%s: %v: %s", expression, err, result.Result.Value)
	}
}

// Text returns the text of the first element that matches, or "(no such element)".
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	var text string
	tab.Eval(fmt.Sprintf("document.querySelector(%q)?.textContent ?? '(no such element)'", selector), &text)
	return text
}

// contrastOf is a function of the page: the texts outside of elements that match its argument, and those whose
// contrast with their background is below that of WCAG AA.
// Nothing is in transition from the colours of another scheme.
const contrastOf = `((except) => {
	const still = new CSSStyleSheet()
	still.replaceSync("* { transition: none !important }")
	document.adoptedStyleSheets.push(still)
	const parse = (c) => c.match(/[\d.]+/g).map(Number)
	const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] }
	const poor = []
	let seen = 0
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.closest(except) || e.getClientRects().length === 0) continue
		seen++
		const style = getComputedStyle(e), text = parse(e.ownerSVGElement ? style.fill : style.color)
		const [a, b] = [light(text), light(behind(e))].sort((x, y) => y - x)
		const large = parseFloat(style.fontSize) >= 24
		if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) poor.push(e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 30) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2))
	}
	return {seen, poor}
})`

// Contrast returns how many texts the page shows outside of elements that match except, a selector, and those
// whose contrast with their background is below that of WCAG AA.
func (tab *Tab) Contrast(except string) (seen int, poor []string) {
	tab.t.Helper()
	var result struct {
		Seen int
		Poor []string
	}
	tab.Eval(fmt.Sprintf("%s(%q)", contrastOf, except), &result)
	return result.Seen, result.Poor
}

// evalEvery is how long Until waits between two evaluations.
const evalEvery = 10 * time.Millisecond

// Until waits for an expression to become true. After limit it fails the test, with what
// the page and the console show.
func (tab *Tab) Until(limit time.Duration, expression string) {
	tab.t.Helper()
	for start := time.Now(); ; time.Sleep(evalEvery) {
		var reached bool
		if tab.Eval("!!("+expression+")", &reached); reached {
			return
		}
		if time.Since(start) > limit {
			faults, noise := tab.Console()
			var shown string
			tab.Eval("document.body.innerText.slice(0, 600)", &shown)
			tab.t.Fatalf("not within %v: %s\nthe page: %q\nthe console: %q %q", limit, expression, shown, faults, noise)
		}
	}
}

// Open sets the size of the window in pixels and the colour scheme, "light" or "dark", and
// loads a page.
func (tab *Tab) Open(url string, width, height int, scheme string) {
	tab.t.Helper()
	tab.Resize(width, height)
	tab.Prefer("prefers-color-scheme", scheme)
	tab.Command("Page.navigate", map[string]any{"url": url}, nil)
	tab.Until(Timeout, "document.readyState === 'complete' && location.href.startsWith('"+url+"')")
}

// phoneMax is the width in pixels below which the browser emulates a phone.
const phoneMax = 600

// Resize sets the size of the window in pixels.
func (tab *Tab) Resize(width, height int) {
	tab.t.Helper()
	tab.Command("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < phoneMax}, nil)
}

// Prefer sets a media feature, such as prefers-color-scheme, and resets all others.
func (tab *Tab) Prefer(feature, value string) {
	tab.t.Helper()
	tab.Command("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": feature, "value": value}}}, nil)
}

// keyCodes are the keys that Press supports.
var keyCodes = map[string]int{"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Home": 36, "End": 35}

// Press presses and releases a key.
func (tab *Tab) Press(key string) {
	tab.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		tab.Command("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": keyCodes[key]}, nil)
	}
}

// Screenshot writes the visible part of the page to a PNG file.
func (tab *Tab) Screenshot(file string) {
	tab.t.Helper()
	var shot struct{ Data string }
	tab.Command("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		tab.t.Fatal(err)
	}
}
