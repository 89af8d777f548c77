package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/proxy"
)

// TestServer_MeasuresRequests on each path, and logs their cost.
func TestServer_MeasuresRequests(t *testing.T) {
	b := startBackend(t, echo)
	var mu sync.Mutex
	var sum stats.Section
	requests := 0
	s := start(t, proxy.Config{Measured: func(one stats.Section) {
		mu.Lock()
		defer mu.Unlock()
		sum = sum.Plus(one)
		if requests++; one.Measured != (runtime.GOOS == "linux") || one.CPU() > one.Wall+one.Wall/100+1000 {
			t.Errorf("%+v", one)
		}
	}}, b.addr)
	const rounds = 50
	for range rounds {
		paths(t, s, func(*http.Request) {}, func(t *testing.T, path string, resp *http.Response, _ string) {
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		})
	}
	var ended int
	await.Until(t, "all are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		ended = len(b.requests())
		return requests == ended
	})
	if ended < 2*rounds || sum.Measured && (sum.User == 0 || sum.System == 0) {
		t.Errorf("%d requests were %+v", ended, sum)
	}
	await.Until(t, "all are logged", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == ended })
	for line := range strings.Lines(s.log.String()) {
		var times struct {
			Wall   *float64 `json:"wall_us"`
			User   *float64 `json:"user_us"`
			System *float64 `json:"system_us"`
			Stall  *float64 `json:"stall_us"`
		}
		if err := json.Unmarshal([]byte(line), &times); err != nil || times.Wall == nil ||
			sum.Measured && (times.User == nil || times.System == nil || times.Stall == nil) {
			t.Fatalf("%v: %s", err, line)
		}
	}
}

// TestServer_MeasuresASample: every process measures the same requests.
func TestServer_MeasuresASample(t *testing.T) {
	const sample, all = 4, 200
	b := startBackend(t, echo)
	var mu sync.Mutex
	got := 0
	s := start(t, proxy.Config{Sample: sample, Measured: func(stats.Section) {
		mu.Lock()
		defer mu.Unlock()
		got++
	}}, b.addr)
	want := 0
	c := client(t)
	for i := range all {
		r := request(t, "GET", "http://"+s.addr+"/", nil)
		id := fmt.Sprint("request-", i)
		if stats.Sampled(id, sample) {
			want++
		}
		r.Header.Set("X-Request-ID", id)
		do(t, c, r)
	}
	if want == 0 || want == all {
		t.Fatalf("%d of %d are in the sample", want, all)
	}
	await.Until(t, "the sample is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got == want
	})
	await.Until(t, "the sample is logged", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == want })
}
