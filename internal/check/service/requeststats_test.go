//go:build linux

package service_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/front/stats"
)

// TestRequestStats_OfARealNode follows requests of each HTTP protocol to the log of a node
// and to its metrics, and reads the log.
func TestRequestStats_OfARealNode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	c := chaos.StartCluster(t, chaos.Options{Binary: trial.Binary, Nodes: 1, Env: map[string]string{"REQUEST_STATS": "1"}})
	c.Settle()
	addr := c.Addrs()[0]
	r, err := http.NewRequest("GET", "http://"+addr+"/timestamp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Request-ID", "a-request-to-be-found")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Get("X-Request-ID"); got != "a-request-to-be-found" {
		t.Errorf("the answer has the ID %q", got)
	}
	for _, protocol := range []string{"http1", "h2c", "h2", "h3", "resp"} {
		code, out, text := trial.Command(t, "bench", "-k", "-c", "4", "--requests", "40", "-t", addr, "-p", protocol, "--violations", filepath.Join(t.TempDir(), "violations"))
		if code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", protocol, code, out, text)
		}
	}
	answer, err = http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || !strings.Contains(string(metrics), "isotone_request_stall_seconds_bucket") || strings.Contains(string(metrics), "isotone_request_wall_seconds_count 0\n") {
		t.Errorf("%v: the metrics have no times of requests", err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c.Nodes[0].Shutdown()
	log := filepath.Join(t.TempDir(), "node.log")
	if err := os.WriteFile(log, []byte(c.Nodes[0].Log()), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, text := trial.Command(t, "stats", log, "--by", "protocol", "--json")
	var report stats.Report
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Total.Requests < 160 || report.Files[0].Broken > 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, text)
	}
	groups := map[string]uint64{}
	for _, g := range report.Groups {
		groups[g.Name] = g.Requests
	}
	for _, protocol := range []string{"http1", "h2c", "h2", "h3"} {
		if groups[protocol] < 40 {
			t.Errorf("of %s there are %d requests", protocol, groups[protocol])
		}
	}
	if raw, err := os.ReadFile(log); err != nil || strings.Count(string(raw), `"request_id":"a-request-to-be-found"`) != 1 {
		t.Errorf("%v: the log does not have the request once", err)
	}
}
