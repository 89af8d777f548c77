package bench

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clock "github.com/isotone/isotone/internal/core/interval"
)

// told is a reading as a node encodes it.
func told(nonce uint64) string {
	return string(clock.Reading{Cluster: 1, Term: 2, Earliest: 1e18, Latest: 1e18 + 5, Limit: 2e18}.Append(nil, nonce))
}

func TestReadings_RESPIsParsedStrictly(t *testing.T) {
	r := reading{clock: true, nonce: readingNonce}
	good := "$48\r\n" + told(readingNonce) + "\r\n"
	for i := range good {
		if n, err := r.parseReadingRESP([]byte(good[:i]), new(answer)); n != 0 || err != nil {
			t.Fatalf("%d bytes: %d, %v", i, n, err)
		}
	}
	var a answer
	if n, err := r.parseReadingRESP([]byte(good+"$48"), &a); n != len(good) || err != nil || a.code != "" || a.told.Term != 2 || a.told.Latest != 1e18+5 {
		t.Errorf("%d, %v, %+v", n, err, a)
	}
	for _, bad := range []string{
		"$48\r\n" + told(1) + "\r\n", "$48\r\n" + told(readingNonce) + "xx", "$16\r\n", "+OK\r\n", "$48\n",
		"$48\r\n" + strings.Repeat("\xff", clock.ReadingSize) + "\r\n",
	} {
		if n, err := r.parseReadingRESP([]byte(bad), new(answer)); n != 0 || !errors.Is(err, errMalformed) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
	if n, err := r.parseReadingRESP([]byte("-CLUSTERDOWN no leader\r\n"), &a); n == 0 || err != nil || a.code == "" {
		t.Errorf("%d, %v, %+v", n, err, a)
	}
}

func FuzzParseReading(f *testing.F) {
	f.Add([]byte("$48\r\n" + told(readingNonce) + "\r\n"))
	f.Add([]byte("-CLUSTERDOWN no leader\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		n, err := reading{clock: true, nonce: readingNonce}.parseReadingRESP(b, &a)
		if n < 0 || n > len(b) || err != nil && n != 0 || n > 0 && a.code == "" && (a.told.Term == 0 || a.told.Earliest > a.told.Latest) {
			t.Errorf("%q: %d, %v, %+v", b, n, err, a)
		}
	})
}

// TestLoadReadings_CountsWhatIsWrong: refusals, answers of others, and readings that go back.
func TestLoadReadings_CountsWhatIsWrong(t *testing.T) {
	var n atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := uint64(1e18)
		switch n.Add(1) % 7 {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":"no_leader","message":"none"}}`))
			return
		case 2:
			_, _ = w.Write([]byte(told(readingNonce + 1)))
			return
		case 3:
			now -= 1000
		}
		_, _ = w.Write(clock.Reading{Cluster: 1, Term: 1, Earliest: now, Latest: now + 1, Limit: 2e18}.Append(nil, readingNonce))
	}))
	defer s.Close()
	o := Default()
	o.Targets, o.Connections, o.Duration, o.Timeout = []string{s.Listener.Addr().String()}, 1, 500*time.Millisecond, time.Minute
	r, err := LoadReadings(t.Context(), o)
	if err != nil || n.Load() >= 14 && (r.Answers == 0 || r.Errors["no_leader"] == 0 || r.Errors[codeMalformed] == 0 || r.Violations == 0 || r.First == "") {
		t.Errorf("%+v, %v", r, err)
	}
	o.Protocol = "h2c"
	if _, err := LoadReadings(t.Context(), o); !errors.As(err, new(Faults)) {
		t.Errorf("h2c: %v", err)
	}
}
