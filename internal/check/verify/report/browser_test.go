package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chromium"
	"github.com/isotone/isotone/internal/check/verify"
)

// These tests look at the page in a real browser; without one they are skipped.

// widths are those of the smallest phones, of a phone of today, on both sides of the change of pictures, and of a desk.
var widths = []int{360, 390, 720, 721, 1280}

// faultsOf is a function of the page that lists what is wrong with it in a window of a width: what is beyond its edge, texts of
// pictures that overlap, pictures that do not show.
const faultsOf = `((width) => {
	const faults = [];
	const name = (e) => e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 40);
	if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways: " + document.documentElement.scrollWidth);
	for (const e of document.querySelectorAll("body :not(.tips, .tips *)")) {
		const box = e.getBoundingClientRect();
		if (!e.closest(".scroll > *") && (box.left < -0.5 || box.right > width + 0.5)) faults.push("beyond the edge: " + name(e));
	}
	let pictures = 0;
	for (const picture of document.querySelectorAll("svg")) {
		if (picture.getClientRects().length === 0) continue;
		pictures++;
		const texts = [...picture.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]);
		texts.forEach(([a, one], i) => texts.slice(i + 1).forEach(([b, other]) => {
			const beside = Math.min(one.right, other.right) - Math.max(one.left, other.left);
			const below = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
			if (beside > 0.5 && below > 3) faults.push("texts overlap: " + name(a) + ", " + name(b));
		}));
	}
	if (pictures * 2 !== document.querySelectorAll("svg").length) faults.push(pictures + " pictures of " + document.querySelectorAll("svg").length + " are shown");
	return faults;
})`

// open writes the page about a result to a file, and opens it with all its details.
func open(t *testing.T, tab *chromium.Tab, r *verify.Result, scheme string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(page(t, r)), 0o644); err != nil {
		t.Fatal(err)
	}
	tab.Open("file://"+filepath.ToSlash(file), widths[0], 800, scheme)
	tab.Eval("document.querySelectorAll('details').forEach((e) => { e.open = true })", nil)
}

func TestPage_FitsEveryWindowInLightAndDark(t *testing.T) {
	tab := browser.Tab(t)
	samples := results()
	samples["minute"], samples["long"] = noisy(1, time.Minute), hundred(3*time.Minute)
	samples["long"].Anomalies = hundred(3 * time.Hour).Anomalies[91:] // late: with long labels
	for name, r := range samples {
		t.Run(name, func(t *testing.T) {
			before := len(tab.Requests())
			open(t, tab, r, "dark")
			for _, width := range widths {
				tab.Resize(width, 800)
				tab.Until(chromium.Timeout, fmt.Sprintf("innerWidth === %d", width))
				var faults []string
				tab.Eval(fmt.Sprintf("%s(%d)", faultsOf, width), &faults)
				for _, fault := range faults {
					t.Errorf("at %d pixels: %s", width, fault)
				}
			}
			for _, scheme := range []string{"dark", "light"} {
				tab.Prefer("prefers-color-scheme", scheme)
				if seen, poor := tab.Contrast("title"); len(poor) > 0 || seen == 0 {
					t.Errorf("%s: of %d texts have too little contrast: %q", scheme, seen, poor)
				}
			}
			if requests := tab.Requests()[before:]; len(requests) != 1 {
				t.Errorf("it loads %q", requests)
			}
		})
	}
	faults, noise := tab.Console()
	if shown := append(faults, noise...); len(shown) > 0 {
		t.Errorf("the console shows\n%s", strings.Join(shown, "\n"))
	}
}

// TestPage_PrintsWhatIsFolded: a page that is printed has what a click would show.
func TestPage_PrintsWhatIsFolded(t *testing.T) {
	tab := browser.Tab(t)
	open(t, tab, broken(), "light")
	const folded = "document.querySelector('details article p').checkVisibility({contentVisibilityAuto: true})"
	tab.Eval("document.querySelectorAll('details').forEach((e) => { e.open = false })", nil)
	tab.Until(chromium.Timeout, "!"+folded)
	tab.Command("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
	tab.Until(chromium.Timeout, folded)
}
