package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/rig"
)

// TestU64_OneOrderInEveryProtocol: at a node with and without a cluster clock, and through a proxy, in both
// read modes.
func TestU64_OneOrderInEveryProtocol(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	plain, withClock := startInterval(t, 0, false), startInterval(t, time.Second, false)
	proxy, _ := runProxy(t, "--node", plain)
	for name, addr := range map[string]string{"node": plain, "with a cluster clock": withClock, "proxy": proxy} {
		var last isotone.Timestamp
		above := func(how string, first, end isotone.Timestamp, err error) {
			t.Helper()
			if err != nil || !last.Before(first) || end.Before(first) {
				t.Fatalf("%s, %s: %v to %v after %v, %v", name, how, first, end, last, err)
			}
			last = end
		}
		c, err := client.NewWith(rig.Soon(t), client.Options{Addrs: []string{addr}, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		for i := range 12 {
			mode := isotone.ReadQuorum + isotone.ReadMode(i%2)
			body := get(t, fmt.Sprintf("http://%s/timestamp?format=u64&n=3&mode=%v", addr, mode), "")
			u := isotone.Timestamp64(binary.BigEndian.Uint64([]byte(body)))
			above("HTTP", u.Timestamp(), (u + 2).Timestamp(), nil)
			if len(body) != 24 || u.Time().Before(began.Add(-time.Minute)) || u.Time().After(time.Now().Add(time.Minute)) {
				t.Fatalf("%s: %d bytes, time %v", name, len(body), u.Time())
			}
			var doc struct{ Timestamps []isotone.Timestamp64 }
			if err := json.Unmarshal([]byte(get(t, "http://"+addr+"/timestamp?format=u64&n=2", "application/json")), &doc); err != nil || len(doc.Timestamps) != 2 {
				t.Fatalf("%s: %v, %v", name, doc, err)
			}
			above("JSON", doc.Timestamps[0].Timestamp(), doc.Timestamps[1].Timestamp(), nil)
			text := sayRESP(t, addr, fmt.Sprintf("TS64 7 %v", mode))
			u, err = isotone.ParseTimestamp64(text)
			above("RESP", u.Timestamp(), (u + 6).Timestamp(), err)
			if name == "proxy" { // it tells clients that it is at port 0
				continue
			}
			ts, err := c.In(mode).Timestamp(rig.Soon(t))
			above("client", ts, ts, err)
			us, err := c.In(mode).Timestamps64(rig.Soon(t), 1000)
			above("client, 64 bits", us.First.Timestamp(), us.Last().Timestamp(), err)
			future := c.Timestamp64Async(rig.Soon(t))
			u, err = future.Wait()
			above("async", u.Timestamp(), u.Timestamp(), err)
		}
	}
}

// get returns the body of a good answer. It asks again while the node is overloaded: an epoch has few
// timestamps of 64 bits, and on a busy machine the next one may be late.
func get(t *testing.T, url, accept string) string {
	t.Helper()
	for {
		status, body := answerOf(t, url, accept)
		if status == http.StatusOK {
			return body
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"overloaded"`) {
			t.Fatalf("%s: %d %q", url, status, body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// answerOf returns the status and the body of an answer.
func answerOf(t *testing.T, url, accept string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(rig.Soon(t), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(body)
}

// sayRESP returns the bulk string that a command gets.
func sayRESP(t *testing.T, addr, line string) string {
	t.Helper()
	answer := rig.Say(t, addr, line)
	head, rest, _ := strings.Cut(answer, "\r\n")
	text, _, _ := strings.Cut(rest, "\r\n")
	if head != fmt.Sprintf("$%d", len(text)) {
		t.Fatalf("%s: %q", line, answer)
	}
	return text
}
