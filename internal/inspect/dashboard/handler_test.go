package dashboard_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/dashboard"
	"github.com/isotone/isotone/internal/inspect/survey"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// answer sends one request to a handler; headers are pairs.
func answer(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler_BrowsersGetThePageAndOthersText(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{State: func() *survey.State { return fakecluster.Read(t, "../survey/testdata/state.json") }})
	for _, tc := range []struct{ accept, want string }{
		{browserAccept, "text/html; charset=utf-8"},
		{"TEXT/HTML", "text/html; charset=utf-8"},
		{"*/*", "text/plain; charset=utf-8"},
		{"", "text/plain; charset=utf-8"},
		{"text/plain, text/html;q=0", "text/plain; charset=utf-8"},
		{"text/html;level=1;q=0.3", "text/html; charset=utf-8"},
	} {
		w := answer(h, "GET", "/", "Accept", tc.accept)
		if got := w.Header().Get("Content-Type"); w.Code != 200 || got != tc.want || !strings.Contains(w.Header().Get("Vary"), "Accept") {
			t.Errorf("Accept %q: %d %s, want %s", tc.accept, w.Code, got, tc.want)
		}
	}
}

func TestHandler_HEADHasTheLengthAndNoBody(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	for _, accept := range []string{browserAccept, "*/*"} {
		get, head := answer(h, "GET", "/", "Accept", accept), answer(h, "HEAD", "/", "Accept", accept)
		if head.Code != 200 || head.Body.Len() != 0 || get.Body.Len() == 0 || head.Header().Get("Content-Length") != get.Header().Get("Content-Length") {
			t.Errorf("%s: HEAD %d with %d bytes, length %s and %s", accept, head.Code, head.Body.Len(), head.Header().Get("Content-Length"), get.Header().Get("Content-Length"))
		}
	}
}

func TestHandler_RefusesOtherPathsAndMethods(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	for _, tc := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/index.html", 404, "not_found"},
		{"GET", "/dashboard/page.js", 404, "not_found"},
		{"POST", "/", 405, "invalid_argument"},
		{"DELETE", "/", 405, "invalid_argument"},
	} {
		w := answer(h, tc.method, tc.path, "Accept", browserAccept)
		var body struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != tc.status || body.Error.Code != tc.code || body.Error.Message == "" {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, w.Code, w.Body, tc.status, tc.code)
		}
		if tc.status == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow %q", tc.method, w.Header().Get("Allow"))
		}
	}
}

func TestHandler_PageIsSentOnceAndCompressed(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	plain := answer(h, "GET", "/", "Accept", browserAccept)
	zipped := answer(h, "GET", "/", "Accept", browserAccept, "Accept-Encoding", "br, gzip")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil || zipped.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v, encoding %q", err, zipped.Header().Get("Content-Encoding"))
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != plain.Body.String() {
		t.Errorf("the compressed page differs: %v, %d bytes of %d", err, len(text), plain.Body.Len())
	}
	for _, w := range []*httptest.ResponseRecorder{plain, zipped} {
		tag := w.Header().Get("ETag")
		encoding := w.Header().Get("Content-Encoding")
		for _, given := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			again := answer(h, "GET", "/", "Accept", browserAccept, "Accept-Encoding", encoding, "If-None-Match", given)
			if tag == "" || again.Code != 304 || again.Body.Len() != 0 || again.Header().Get("ETag") != tag {
				t.Errorf("If-None-Match %s: %d with %d bytes", given, again.Code, again.Body.Len())
			}
		}
		if again := answer(h, "GET", "/", "Accept", browserAccept, "If-None-Match", `"other"`); again.Code != 200 {
			t.Errorf("another tag: %d", again.Code)
		}
	}
}

// TestHandler_PolicyAllowsThePageItselfOnly: nothing is loaded from elsewhere, and the hashes
// match the style and the script of the page.
func TestHandler_PolicyAllowsThePageItselfOnly(t *testing.T) {
	w := answer(dashboard.Handler(dashboard.Config{}), "GET", "/", "Accept", browserAccept)
	policy, page := w.Header().Get("Content-Security-Policy"), w.Body.String()
	for _, element := range []struct{ directive, pattern string }{
		{"script-src", `(?s)<script[^>]*>(.*?)</script>`}, {"style-src", `(?s)<style>(.*?)</style>`},
	} {
		found := regexp.MustCompile(element.pattern).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements for %s", len(found), element.directive)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := element.directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("%s is missing in %s", want, policy)
		}
	}
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("%s is missing in %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy: %s", policy)
	}
	if found := regexp.MustCompile(`(src|href)="(https?:)?//|@import|url\(|\{\{|innerHTML| style="`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Error("X-Content-Type-Options is not nosniff")
	}
}

func TestHandler_TextForCurlIsShortAndComplete(t *testing.T) {
	w := answer(dashboard.Handler(dashboard.Config{State: func() *survey.State { return fakecluster.Read(t, "../survey/testdata/state.json") }}), "GET", "/")
	want, err := os.ReadFile("testdata/summary.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control: %q", w.Header().Get("Cache-Control"))
	}
}

func TestHandler_TextSaysSoBeforeThereIsAState(t *testing.T) {
	w := answer(dashboard.Handler(dashboard.Config{}), "GET", "/")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "is starting") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestHandler_TextNamesWhatIsMissing(t *testing.T) {
	s := fakecluster.Read(t, "../survey/testdata/state.json")
	s.Leader, s.Epoch, s.Latency = nil, nil, survey.Latency{}
	s.Node.Role, s.Node.Ready, s.Node.NotReady = "candidate", false, "no leader\x1b[2J is known"
	var text strings.Builder
	if err := survey.WriteSummary(&text, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"is candidate", "Not ready: no leader [2J is known", "none is known", "p50 -, p99 -, max -", "127.0.0.1:8081/timestamp"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}

func TestHandler_TextCountsTimelinesIfThereAreAny(t *testing.T) {
	s := fakecluster.Read(t, "../survey/testdata/state.json")
	for _, n := range []int{0, 1234} {
		s.Timelines = fakecluster.Timelines(2, 3)
		s.Timelines.Total = n
		var text strings.Builder
		if err := survey.WriteSummary(&text, s); err != nil || strings.Contains(text.String(), "timelines") != (n > 0) {
			t.Errorf("%d: %v\n%s", n, err, text.String())
		}
		if want := "1 234; this node serves 200 requests for them per second"; n > 0 && !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}
