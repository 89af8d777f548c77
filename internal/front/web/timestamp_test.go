package web_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

func TestTimestamp_Binary(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, n := range []int{1, 2, 32, 33, 2048, 2049, 65536} {
			target := fmt.Sprintf("/timestamp?n=%d", n)
			if n == 1 {
				target = "/timestamp"
			}
			a := c.get(t, target)
			if a.StatusCode != 200 || len(a.body) != 16*n || a.ContentLength != int64(16*n) {
				t.Fatalf("n=%d: %d, %d bytes, Content-Length %d", n, a.StatusCode, len(a.body), a.ContentLength)
			}
			if a.Header.Get("Content-Type") != "application/octet-stream" || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("n=%d: header %v", n, a.Header)
			}
			first := binary.BigEndian.Uint64(a.body[8:])
			for i := range n {
				at := a.body[16*i:]
				if binary.BigEndian.Uint64(at) != epoch || binary.BigEndian.Uint64(at[8:]) != first+uint64(i) {
					t.Fatalf("n=%d: timestamp %d is %x", n, i, at[:16])
				}
			}
		}
	})
}

func TestTimestamp_Range(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, n := range []uint64{1, 65537, 1 << 32} {
			a := c.get(t, fmt.Sprintf("/timestamp?format=range&n=%d", n), "Accept", "application/json")
			var got isotone.Range
			if err := got.UnmarshalBinary(a.body); err != nil || a.StatusCode != 200 {
				t.Fatalf("n=%d: %d %q", n, a.StatusCode, a.body)
			}
			if got.Count != n || got.First.Time != epoch || a.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("n=%d: %+v %v", n, got, a.Header)
			}
		}
	})
}

func TestTimestamp_U64(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, n := range []int{1, 2, 64, 65, 4097, 65536} {
			target := fmt.Sprintf("/timestamp?format=u64&n=%d", n)
			a := c.get(t, target)
			if a.StatusCode != 200 || len(a.body) != 8*n || a.ContentLength != int64(8*n) || a.Header.Get("Content-Type") != "application/octet-stream" {
				t.Fatalf("n=%d: %d, %d bytes, %v", n, a.StatusCode, len(a.body), a.Header)
			}
			b := c.get(t, target, "Accept", "application/json")
			var got struct{ Timestamps []string }
			if err := json.Unmarshal(b.body, &got); err != nil || len(got.Timestamps) != n || b.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("n=%d: %v, %d timestamps, %v", n, err, len(got.Timestamps), b.Header)
			}
			first := binary.BigEndian.Uint64(a.body)
			for i := range n {
				if u := binary.BigEndian.Uint64(a.body[8*i:]); u != first+uint64(i) || got.Timestamps[i] != strconv.FormatUint(first+uint64(n+i), 10) {
					t.Fatalf("n=%d: %d and %s at %d, after %d", n, u, got.Timestamps[i], i, first)
				}
			}
		}
	})
}

func TestTimestamp_JSON(t *testing.T) {
	s := start(t)
	check := func(t *testing.T, a answer, n int) {
		t.Helper()
		var body struct {
			Timestamps []struct{ Time, Index, Hex string }
		}
		if err := json.Unmarshal(a.body, &body); err != nil || a.StatusCode != 200 {
			t.Fatalf("%d: %v: %.200q", a.StatusCode, err, a.body)
		}
		if len(body.Timestamps) != n || a.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d timestamps, want %d; %v", len(body.Timestamps), n, a.Header)
		}
		for i, each := range body.Timestamps {
			if i > 700 && i%997 != 0 && i < n-1 {
				continue // enough to see every edge of a buffer
			}
			ts, err := isotone.ParseTimestamp(each.Hex)
			if err != nil || each.Time != fmt.Sprint(ts.Time) || each.Index != fmt.Sprint(ts.Index) || each.Hex != ts.String() {
				t.Fatalf("timestamp %d: %+v: %v", i, each, err)
			}
		}
	}
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, n := range []int{1, 4, 5, 6, 312, 65536} {
			check(t, c.get(t, fmt.Sprintf("/timestamp?n=%d&format=json", n)), n)
		}
		check(t, c.get(t, "/timestamp?n=3", "Accept", "text/html, application/json;q=0.9"), 3)
		if a := c.get(t, "/timestamp", "Accept", "*/*"); len(a.body) != 16 {
			t.Errorf("Accept */*: %q", a.body)
		}
	})
}

func TestTimestamp_JSONHoldsTheLargestNumbers(t *testing.T) {
	s := start(t)
	s.backend.next.Store(1<<64 - 65536 - 1)
	a := s.client(t, "http1").get(t, "/timestamp?n=65536&format=json")
	if !json.Valid(a.body) || !strings.Contains(string(a.body), `"index":"18446744073709551614"`) {
		t.Errorf("%d bytes: %.200q", len(a.body), a.body)
	}
}

func TestTimestamp_Mode(t *testing.T) {
	s := start(t, func(c *web.Config) { c.Mode = isotone.ReadLease })
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for target, want := range map[string]isotone.ReadMode{
			"/timestamp":             isotone.ReadLease,
			"/timestamp?mode=quorum": isotone.ReadQuorum,
			"/timestamp?mode=lease":  isotone.ReadLease,
			"/timestamp?other=x&":    isotone.ReadLease,
		} {
			c.get(t, target)
			if got := s.backend.lastMode(); got != want {
				t.Errorf("%s: mode %v, want %v", target, got, want)
			}
		}
	})
}

func TestTimestamp_Floor(t *testing.T) {
	s := start(t)
	floor := isotone.Timestamp{Time: 1<<60 + 5, Index: 1<<64 - 1}
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for target, want := range map[string]isotone.Timestamp{
			"/timestamp": {},
			"/timestamp?n=100&format=json&floor=" + floor.String():         floor,
			"/timestamp?floor=" + strings.ToUpper(floor.String()):          floor,
			"/timestamp?n=65536&floor=00000000000000000000000000000000":    {},
			"/timestamp?n=65536&%66loor=00000000000000000000000000000001&": {Index: 1},
		} {
			if a := c.get(t, target); a.StatusCode != 200 {
				t.Errorf("%s: %d %q", target, a.StatusCode, a.body)
			}
			if got := s.backend.lastFloor(); got != want {
				t.Errorf("%s: floor %v, want %v", target, got, want)
			}
		}
	})
}

// TestTimestamp_Timeline: a request without one asks for the default order, whatever came before.
func TestTimestamp_Timeline(t *testing.T) {
	s := start(t)
	longest := strings.Repeat("a", 64)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, tt := range [][2]string{
			{"/timestamp?timeline=a", "a"}, {"/timestamp", ""}, {"/timestamp?n=65536&timeline=tenant-7/orders", "tenant-7/orders"}, {"/timestamp?n=65536", ""},
			{"/timestamp?timeline=tenant-7%2Forders&format=json", "tenant-7/orders"}, {"/timestamp?format=json", ""}, {"/timestamp?%74imeline=%61", "a"},
			{"/timestamp?format=u64&timeline=" + longest, longest}, {"/timestamp?format=u64", ""},
		} {
			if a := c.get(t, tt[0]); a.StatusCode != 200 {
				t.Errorf("%s: %d %q", tt[0], a.StatusCode, a.body)
			}
			s.backend.mu.Lock()
			if got := s.backend.timeline; got != tt[1] {
				t.Errorf("%s: timeline %q, want %q", tt[0], got, tt[1])
			}
			s.backend.mu.Unlock()
		}
	})
}

func TestTimestamp_RefusesBadParametersBeforeTheBackend(t *testing.T) {
	s := start(t)
	bad := []string{
		"n=0", "n=-1", "n=+1", "n=%2B1", "n=65537", "n=65537&format=json", "n=4294967297&format=range",
		"n=9223372036854775808", "n=18446744073709551616", "n=18446744073709551617&format=range",
		"n=x", "n=", "n", "n=1e3", "n=0x10", "n=01", "n=1_0", "n=%31%", "n=%zz", "n=1%00", "n= 1",
		"n=1&n=1", "n=1&%6e=2", "format=json&format=json", "mode=lease&mode=lease", "mode=quorum&mode=lease",
		"format=", "format=xml", "format=JSON", "mode=", "mode=fast", "mode=default",
		"floor=", "floor", "floor=1", "floor=0000000000000000000000000000000", "floor=000000000000000000000000000000000",
		"floor=0000000000000000000000000000000g", "floor=0x000000000000000000000000000000",
		"floor=00000000000000000000000000000001&floor=00000000000000000000000000000001",
		"timeline=", "timeline", "timeline=a&timeline=a", "timeline=a&%74imeline=b", "timeline=a+b", "timeline=a%20b", "timeline=%", "timeline=a%00", "timeline=%c3%a4", "timeline=a{b}",
		"timeline=" + strings.Repeat("a", 65),
		"other=%", "%=1", "n=1;format=json", "a;n=5",
	}
	eachProtocol(t, s, func(t *testing.T, c *client) {
		before := s.backend.submitted.Load()
		for _, query := range bad {
			// A space cannot be sent raw; the raw-bytes table does that.
			a := c.get(t, "/timestamp?"+strings.ReplaceAll(query, " ", "%20"))
			if a.StatusCode != 400 {
				t.Errorf("%q: status %d", query, a.StatusCode)
			}
			wantFault(t, a, 400, isotone.CodeInvalidArgument)
		}
		if got := s.backend.submitted.Load(); got != before {
			t.Errorf("%d bad requests reached the backend", got-before)
		}
	})
}

func TestTimestamp_Errors(t *testing.T) {
	s := start(t)
	table := []struct {
		err        error
		status     int
		code       isotone.Code
		retryAfter string
	}{
		{isotone.ErrInvalidArgument, 400, isotone.CodeInvalidArgument, ""},
		{isotone.ErrUnauthorized, 401, isotone.CodeUnauthorized, ""},
		{isotone.ErrNotFound, 404, isotone.CodeNotFound, ""},
		{&isotone.Error{Code: isotone.CodeNotLeader, Message: "leaderless", Leader: ""}, 503, isotone.CodeNoLeader, "1"},
		{isotone.ErrNoLeader, 503, isotone.CodeNoLeader, "1"},
		{isotone.ErrOverloaded, 503, isotone.CodeOverloaded, "1"},
		{&isotone.Error{Code: isotone.CodeOverloaded, Message: "full", RetryAfter: 2100 * time.Millisecond}, 503, isotone.CodeOverloaded, "3"},
		{isotone.ErrDeadlineExceeded, 504, isotone.CodeDeadlineExceeded, ""},
		{isotone.ErrClock, 503, isotone.CodeClock, ""},
		{isotone.ErrNoQuorum, 503, isotone.CodeNoQuorum, ""},
		{isotone.ErrWrongCluster, 502, isotone.CodeWrongCluster, ""},
		{isotone.ErrRegressed, 412, isotone.CodeRegressed, ""},
		{isotone.ErrInternal, 500, isotone.CodeInternal, ""},
		{fmt.Errorf("wrapped: %w", isotone.ErrClock), 503, isotone.CodeClock, ""},
		{errors.New(`a "strange" error`), 500, isotone.CodeInternal, ""},
	}
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, row := range table {
			s.backend.fail(row.err)
			a := c.get(t, "/timestamp")
			wantFault(t, a, row.status, row.code)
			if got := a.Header.Get("Retry-After"); got != row.retryAfter {
				t.Errorf("%v: Retry-After %q, want %q", row.err, got, row.retryAfter)
			}
		}
	})
}

func TestTimestamp_NotLeaderNamesTheLeader(t *testing.T) {
	s := start(t)
	s.backend.fail(&isotone.Error{Code: isotone.CodeNotLeader, Message: "ask node 1", Leader: "10.0.0.1:8080"})
	eachProtocol(t, s, func(t *testing.T, c *client) {
		a := c.get(t, "/timestamp?n=2&format=json&x=%2F")
		wantFault(t, a, http.StatusConflict, isotone.CodeNotLeader)
		if got := a.Header.Get("Isotone-Leader"); got != "10.0.0.1:8080" {
			t.Errorf("Isotone-Leader %q", got)
		}
		if got, want := a.Header.Get("Location"), c.scheme+"://10.0.0.1:8080/timestamp?n=2&format=json&x=%2F"; got != want {
			t.Errorf("Location %q, want %q", got, want)
		}
	})
}

func TestTimestamp_AnswersDeadlineExceeded(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *web.Config) { c.Limits.RequestTimeout = 500 * time.Millisecond })
	eachProtocol(t, s, func(t *testing.T, c *client) {
		s.backend.hold()
		wantFault(t, c.get(t, "/timestamp"), http.StatusGatewayTimeout, isotone.CodeDeadlineExceeded)
		// The late answer belongs to nobody: not to the next request either.
		s.backend.release()
		want := s.backend.next.Load()
		if a := c.get(t, "/timestamp"); len(a.body) != 16 || binary.BigEndian.Uint64(a.body[8:]) != want {
			t.Errorf("after an abandoned request: %x, want index %d", a.body, want)
		}
	})
}

func TestTimestamp_RefusesAWrongNumberFromTheBackend(t *testing.T) {
	s := start(t)
	s.backend.hold()
	got := make(chan answer, 1)
	c := s.client(t, "http1")
	go func() {
		a, _ := c.try("GET", "/timestamp?n=5", nil)
		got <- a
	}()
	await.Until(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == 1 })
	s.backend.mu.Lock()
	batch := s.backend.held[0]
	s.backend.held = nil
	s.backend.mu.Unlock()
	batch.Ranges[0].Count = 4
	batch.Done(batch)
	wantFault(t, <-got, 500, isotone.CodeInternal)
}
