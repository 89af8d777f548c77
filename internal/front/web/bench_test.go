package web

import (
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// prompt answers within Submit and allocates nothing.
type prompt struct{}

var named = &front.Status{ClusterID: 0xabc}

func (prompt) Status() *front.Status { return named }

func (prompt) Submit(b *front.Batch) {
	for i, n := range b.Counts {
		b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: 1 << 60}, Count: n}
	}
	b.Done(b)
}

// sink is a response that goes nowhere; its header is used again, so what is
// left of the allocations is the handler's.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return io.Discard.Write(p) }

func request(query string) *http.Request {
	return &http.Request{
		Method: http.MethodGet, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		URL: &url.URL{Path: "/timestamp", RawQuery: query},
	}
}

func testHandler() *handler {
	return newHandler(Config{Backend: prompt{}, Limits: Limits{}.withDefaults()})
}

func TestHandler_DoesNotAllocate(t *testing.T) {
	h, w := testHandler(), &sink{http.Header{}}
	for _, query := range []string{"", "n=1&mode=lease", "format=range&n=4294967296", "n=32&format=json"} {
		r := request(query)
		if got := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) }); got >= 1 && !raceEnabled {
			t.Errorf("%q: %v allocations", query, got)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	for _, query := range []string{"", "n=100", "format=range&n=100", "n=100&format=json", "n=65536", "n=65536&format=json"} {
		b.Run("query="+query, func(b *testing.B) {
			h, w, r := testHandler(), &sink{http.Header{}}, request(query)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
