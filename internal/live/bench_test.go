package live_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/live"
)

// BenchmarkLookup is what the fast path does for a request, but for the copy.
func BenchmarkLookup(b *testing.B) {
	s := pair(b, nil)
	tag := s.Lookup("large").ETag()
	for name, request := range map[string]struct{ encoding, none string }{
		"identity": {"", ""}, "gzip": {"gzip, deflate, br, zstd", ""}, "304": {"", tag},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := s.Lookup("large")
				if d.Response(live.AcceptsGzip(request.encoding), false, request.none) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}

// BenchmarkHandler is the way of all other servers, without the server.
func BenchmarkHandler(b *testing.B) {
	s := pair(b, nil)
	r := httptest.NewRequest("GET", "/live/large", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := &sink{http.Header{}}
	h := s.Handler()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkChange is what a change costs, whoever reads it: from the load to the answers.
func BenchmarkChange(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "8MiB": 8 << 20} {
		b.Run(name, func(b *testing.B) {
			text := []byte(`[` + strings.Repeat(`{"candidate":"Ada Example","votes":1234567,"share":0.4321},`, size/59-1) + `0]`)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := live.Encode(text, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
