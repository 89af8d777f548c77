package node_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/snowflake"
)

// series returns the samples that a node's metrics have now, by name with labels.
func series(c *cluster, id uint64) map[string]float64 {
	c.t.Helper()
	rec := httptest.NewRecorder()
	c.cfgs[id].Metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	all := map[string]float64{}
	for line := range strings.Lines(rec.Body.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			all[strings.TrimPrefix(name, "isotone_")] = v
		}
	}
	return all
}

// eventually waits until the metrics of a node satisfy ok.
func eventually(c *cluster, id uint64, what string, ok func(map[string]float64) bool) {
	c.t.Helper()
	for deadline := time.Now().Add(liveness); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok(series(c, id)) {
			return
		}
	}
	c.t.Errorf("node %d: %s: %v", id, what, series(c, id))
}

// TestMetrics_TellOfMembersLogAndQueues of the leader and of a follower, with all members and
// without one.
func TestMetrics_TellOfMembersLogAndQueues(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *node.Config) {
		cfg.ClockJumpMax = time.Minute
		cfg.IDs = node.IDConfig{Layout: snowflake.Twitter, Workers: 2, Lease: 10 * time.Second, FixedWorker: -1}
	})
	leader := c.leader()
	follower := leader%3 + 1
	gone := follower%3 + 1
	eventually(c, leader, "state of the leader", func(m map[string]float64) bool {
		return m[`members{role="voter"}`] == 3 && m[`members{role="learner"}`] == 0 && m["quorum_voters"] == 2 && m["voters_connected"] == 3 &&
			m["raft_applied_index"] > 3 && m["raft_committed_index"] >= m["raft_applied_index"] && m["raft_last_index"] >= m["raft_committed_index"] &&
			m["cluster_workers_leased"] == 6 && m["cluster_workers_limit"] == 1024 && m["snowflake_workers"] == 2 &&
			m["storage_database_bytes"] > 0 && m["storage_write_seconds_count"] > 0 && m["clock_limit_seconds"] == 60 &&
			m["feature_level_newest"] >= m["feature_level"] && m["feature_level"] > 0
	})
	now := series(c, leader)
	for _, queue := range []string{
		"requests", "rounds", "worker_leases_of_clients", "worker_leases_given_back", "entries_not_on_disk",
		"messages_that_wait_for_the_disk", "views_of_peers", "batches_submitted",
	} {
		if limit := now[fmt.Sprintf("queue_items_limit{queue=%q}", queue)]; limit <= 0 || now[fmt.Sprintf("queue_items{queue=%q}", queue)] > limit {
			t.Errorf("queue %s has the limit %v", queue, limit)
		}
	}
	if _, ok := now[`queue_items{queue="posts_to_loops"}`]; !ok {
		t.Error("the posts of loops are not there")
	}
	lag := func(id uint64) string { return fmt.Sprintf(`peer_lag_entries{peer="%d"}`, id) }
	if _, ok := series(c, follower)[lag(leader)]; ok {
		t.Error("a follower says how far the leader lags")
	}
	if err := c.stop(gone); err != nil {
		t.Fatal(err)
	}
	leader = c.leader()
	eventually(c, leader, "a member is gone", func(m map[string]float64) bool {
		return m["voters_connected"] == 2 && m[lag(gone)] > 5 && m[`peer_messages_dropped_total{reason="not_connected"}`] > 0
	})
	var labels []string
	for name := range series(c, leader) {
		if strings.HasPrefix(name, "node_info{") {
			labels = append(labels, name)
		}
	}
	if want := fmt.Sprintf(`node="%d"}`, leader); len(labels) != 1 || !strings.HasSuffix(labels[0], want) || strings.Contains(labels[0], `cluster=""`) {
		t.Errorf("the node says that it is %v", labels)
	}
}

// TestMetrics_ShowAWriteThatHangs while it does, and no more afterwards.
func TestMetrics_ShowAWriteThatHangs(t *testing.T) {
	hang, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := newCluster(t, 1, func(cfg *node.Config) {
		cfg.StorageFault = func() error {
			select {
			case <-hang:
				<-end
			default:
			}
			return nil
		}
	})
	release := func() { once.Do(func() { close(end) }) }
	defer release()
	c.leader()
	close(hang)
	eventually(c, 1, "a write hangs", func(m map[string]float64) bool { return m["storage_write_underway_seconds"] > 0.2 })
	release()
	eventually(c, 1, "writes are done", func(m map[string]float64) bool { return m["storage_write_underway_seconds"] == 0 })
}

// TestMetrics_EveryRefusalHasItsSeries: a new code that the metrics do not know counts as other.
func TestMetrics_EveryRefusalHasItsSeries(t *testing.T) {
	codes := regexp.MustCompile(`RefusalCode = "(\w+)"`)
	for _, pattern := range []string{"../core/replica/*.go", "../host/peer/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, code := range codes.FindAllStringSubmatch(string(text), -1) {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				m := telemetry.NewMetrics("")
				m.CountPeerRefused(code[1], "self")
				rec := httptest.NewRecorder()
				m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
				if !strings.Contains(rec.Body.String(), fmt.Sprintf("peer_handshake_refusals_total{by=\"self\",reason=%q} 1\n", code[1])) {
					t.Errorf("%s: the refusal %s has no series", file, code[1])
				}
			}
		}
	}
}

// TestMetrics_CountRefusalsByReason: a node on a directory that is not the one it had.
func TestMetrics_CountRefusalsByReason(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	wiped := leader%3 + 1
	if err := c.stop(wiped); err != nil {
		t.Fatal(err)
	}
	old := c.cfgs[wiped]
	if err := os.Rename(old.DataDir, filepath.Join(t.TempDir(), "old")); err != nil {
		t.Fatal(err)
	}
	c.start(wiped)
	// The first of the other two that refuses it may end it before the second hears of it.
	refused := func(id uint64) bool {
		m := series(c, id)
		count := m[`peer_handshake_refusals_total{by="self",reason="wiped"}`] + m[`peer_handshake_refusals_total{by="self",reason="already_formed"}`]
		return count > 0 && m["peer_refusals_total"] >= count
	}
	eventually(c, leader, "a wiped node is refused", func(map[string]float64) bool {
		return refused(leader) || refused(wiped%3+1)
	})
}
