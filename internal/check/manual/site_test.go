package manual_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chromium"
)

// The website that SITE names, as "make site-check" sets it, in a real browser.

const (
	phoneWidth, phoneHeight = 375, 720
	deskWidth, deskHeight   = 1280, 800
	// tallWidth and tallHeight are those of a phone of today.
	tallWidth, tallHeight = 390, 844
	// pagesMin is how many pages there are at least: a site that lacks most of them was built wrongly.
	pagesMin = 60
	// pageTimeout bounds what a page does after it is loaded.
	pageTimeout = time.Minute
)

// policy forbids requests to other hosts, also to the workers of a page. What it blocks is an error in
// the console.
const policy = "default-src 'self' 'unsafe-inline' data:"

var browser chromium.Browser

func TestMain(m *testing.M) {
	code := m.Run()
	browser.Close()
	os.Exit(code)
}

// serveSite serves the website, and returns its address and the paths of its pages.
func serveSite(t *testing.T) (string, []string) {
	t.Helper()
	dir := os.Getenv("SITE")
	if dir == "" {
		t.Skip("SITE is not set: make site-check builds the website and looks at it")
	}
	var pages []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "index.html" {
			page, relErr := filepath.Rel(dir, filepath.Dir(path))
			pages = append(pages, "/"+strings.TrimPrefix(filepath.ToSlash(page)+"/", "./"))
			return relErr
		}
		return err
	})
	pages = append(pages, "/404.html")
	if err != nil || len(pages) < pagesMin {
		t.Fatalf("%s has %d pages, want %d at least: %v", dir, len(pages), pagesMin, err)
	}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, pages
}

// faultsOf is a function of the page that lists what is wrong with it. Its argument is the width of the
// window: on a phone innerWidth grows with the page.
const faultsOf = `(async (width) => {
	const faults = []
	if (document.documentElement.scrollWidth > width) {
		const wide = [...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > width + 1)
		faults.push('scrolls sideways: ' + document.documentElement.scrollWidth + ' px; ' + (wide[0]?.outerHTML ?? '').slice(0, 160))
	}
	const scheme = matchMedia('(prefers-color-scheme: dark)').matches
	const light = getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) > 384
	if (scheme === light) faults.push('the scheme is not that of the system')
	const pictures = [...document.images]
	pictures.forEach(i => { i.loading = 'eager' })
	await Promise.all(pictures.map(i => i.decode().catch(() => faults.push('no picture: ' + i.src))))
	if (!document.querySelector('article h1')) faults.push('no heading')
	return faults
})`

// unread are elements whose text nobody sees: scripts, what is closed, and marks of links that are shown on hover.
const unread = "script, noscript, [hidden], .headerlink, .md-skip, .md-search, .md-dialog, .md-header__topic"

// look opens a page and returns what is wrong with it.
func look(tab *chromium.Tab, url string, width, height int, scheme string) []string {
	tab.Open(url, width, height, scheme)
	tab.Until(pageTimeout, "!document.querySelector('pre.mermaid')")
	var faults []string
	tab.Eval(fmt.Sprintf("%s(%d)", faultsOf, width), &faults)
	if seen, poor := tab.Contrast(unread); len(poor) > 0 || seen == 0 {
		faults = append(faults, fmt.Sprintf("of %d texts have too little contrast: %q", seen, poor))
	}
	return faults
}

// TestSite_EveryPageFitsAPhoneInTheDark looks at all pages.
func TestSite_EveryPageFitsAPhoneInTheDark(t *testing.T) {
	url, pages := serveSite(t)
	tab := browser.Tab(t)
	seen := 0
	for _, page := range pages {
		name := strings.ReplaceAll(strings.Trim(page, "/"), "/", "-")
		t.Run("page-"+name, func(t *testing.T) {
			for _, fault := range look(tab, url+page, phoneWidth, phoneHeight, "dark") {
				t.Error(fault)
			}
			tab.Prefer("prefers-color-scheme", "light")
			if _, poor := tab.Contrast(unread); len(poor) > 0 {
				t.Errorf("in the light: too little contrast: %q", poor)
			}
			faults, noise := tab.Console()
			shown := append(faults, noise...)
			if len(shown) > seen {
				t.Errorf("the console shows %q", shown)
			}
			seen = len(shown)
		})
	}
	for _, request := range tab.Requests() {
		if !strings.HasPrefix(request, url+"/") && !strings.HasPrefix(request, "data:") {
			t.Errorf("a request to another host: %s", request)
		}
	}
}

// TestLook_NoticesWhatIsWrong has a page that is wrong in every way.
func TestLook_NoticesWhatIsWrong(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<meta name=viewport content="width=device-width"><body style="background: rgb(255, 255, 255)"><article>`+
			`<p style="width: 500px; color: #888">wide</p><img src=none.png></article>`)
	}))
	defer server.Close()
	got := strings.Join(look(browser.Tab(t), server.URL+"/", phoneWidth, phoneHeight, "dark"), "\n")
	for _, want := range []string{"scrolls sideways: 508 px; <p style", "the scheme is not that of the system", "no picture: ", "no heading",
		`of 1 texts have too little contrast: ["P.null wide 3.54"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
}

// TestSite_SearchFinds searches for words of pages, and follows the first result.
func TestSite_SearchFinds(t *testing.T) {
	url, _ := serveSite(t)
	tab := browser.Tab(t)
	for word, want := range map[string]string{"ceiling": "/concepts/", "commit wait": "/intervals/", "isotone drain": "/operations/"} {
		if faults := look(tab, url+"/", deskWidth, deskHeight, "light"); len(faults) > 0 {
			t.Error(faults)
		}
		tab.Eval("document.querySelector('[data-md-component=search-query]').focus()", nil)
		tab.Command("Input.insertText", map[string]any{"text": word}, nil)
		tab.Eval("document.querySelector('[data-md-component=search-query]').dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))", nil)
		results := "[...document.querySelectorAll('.md-search-result__link')]"
		tab.Until(pageTimeout, fmt.Sprintf("%s.some(a => new URL(a.href).pathname.startsWith(%q))", results, want))
		var first string
		tab.Eval(results+"[0].href", &first)
		if faults := look(tab, first, deskWidth, deskHeight, "light"); len(faults) > 0 {
			t.Errorf("%s: %q", first, faults)
		}
	}
	if faults, noise := tab.Console(); len(faults)+len(noise) > 0 {
		t.Errorf("the console shows %q %q", faults, noise)
	}
}
