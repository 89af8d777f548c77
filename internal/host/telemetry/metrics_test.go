package telemetry_test

import (
	"io"
	"math"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// scrape returns what Prometheus would see.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil || rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %s %v", rec.Code, rec.Header().Get("Content-Type"), err)
	}
	return string(body)
}

// wantLines fails for every line that the scrape lacks.
func wantLines(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	text := scrape(t, m)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the scrape lacks %s", line)
		}
	}
}

func TestMetrics_LeasesAreCountedByWhoAnswered(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	m.SetNode(telemetry.NodeStats{Leased: true})
	m.AddLeases(5, 2, 1)
	wantLines(t, m, "isotone_lease_held 1", "isotone_leases_lost_total 1",
		`isotone_lease_requests_total{answered_by="lease"} 5`, `isotone_lease_requests_total{answered_by="round"} 2`)
}

func TestMetrics_FloorsOfClientsAreCountedByWhatWasDone(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	m.AddFloors(3, 4, 6)
	wantLines(t, m, `isotone_client_floors_total{outcome="passed"} 3`, `isotone_client_floors_total{outcome="raised"} 4`,
		`isotone_client_floors_total{outcome="refused"} 6`)
}

func TestMetrics_AllAreThereFromTheStart(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	m.SetNode(telemetry.NodeStats{Peers: []telemetry.PeerStats{{ID: 2}}})
	text := scrape(t, m)
	for _, name := range []string{
		"requests_total counter", "request_duration_seconds histogram", "timestamps_total counter",
		"batch_requests histogram", "round_duration_seconds histogram", "rounds_failed_total counter",
		"leader gauge", "leader_id gauge", "term gauge", "ready gauge", "ceiling_lead_seconds gauge",
		"time_lead_seconds gauge", "reservations_total counter", "reservation_failures_total counter",
		"queue_depth gauge", "queue_limit gauge", "elections_total counter", "leader_suspected_total counter", "peer_connected gauge",
		"peer_refusals_total counter", "storage_write_seconds histogram", "storage_failed gauge",
		"clock_backward_total counter", "build_info gauge", "lease_held gauge", "leases_lost_total counter",
		"lease_requests_total counter", "client_floors_total counter",
	} {
		if !strings.Contains(text, "\n# TYPE isotone_"+name+"\n") {
			t.Errorf("the scrape lacks isotone_%s", name)
		}
	}
	wantLines(t, m, `isotone_build_info{goversion="`+runtime.Version()+`",version="v1"} 1`)
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(text, "\n"+name+" ") && runtime.GOOS == "linux" {
			t.Errorf("the scrape lacks %s", name)
		}
	}
}

func TestMetrics_EveryErrorCodeHasItsSeries(t *testing.T) {
	m := telemetry.NewMetrics("")
	for _, err := range []*isotone.Error{
		isotone.ErrInvalidArgument, isotone.ErrNotLeader, isotone.ErrNoLeader, isotone.ErrOverloaded,
		isotone.ErrDeadlineExceeded, isotone.ErrUnauthorized, isotone.ErrNotFound, isotone.ErrClock,
		isotone.ErrWrongCluster, isotone.ErrRegressed, isotone.ErrForbidden, isotone.ErrQuotaExceeded, isotone.ErrNoWorker, isotone.ErrNoQuorum, isotone.ErrInternal,
	} {
		m.ObserveRequest("http1", string(err.Code), 0)
		wantLines(t, m, `isotone_requests_total{code="`+string(err.Code)+`",protocol="http1"} 1`)
	}
}

func TestMetrics_UnknownWordsCountAsOther(t *testing.T) {
	m := telemetry.NewMetrics("")
	before := strings.Count(scrape(t, m), "\nisotone_")
	for _, word := range []string{"gopher", "", "OK", "http1 "} {
		m.ObserveRequest(word, word, time.Millisecond)
		m.CountRoundFailed(word)
	}
	wantLines(t, m,
		`isotone_requests_total{code="other",protocol="other"} 4`,
		`isotone_request_duration_seconds_count{protocol="other"} 4`,
		`isotone_rounds_failed_total{reason="other"} 4`,
	)
	if after := strings.Count(scrape(t, m), "\nisotone_"); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestMetrics_CountWhatTheyAreTold(t *testing.T) {
	m := telemetry.NewMetrics("")
	m.ObserveRequest("http1", "ok", 60*time.Microsecond)
	m.ObserveRequests("resp", "ok", 1000, time.Millisecond)
	m.AddTimestamps(1 << 32)
	m.AddIDs(5)
	m.ObserveThrift("get_id", "app", "ok")
	m.ObserveThrift("get_worker_id", "", "clock")
	m.ObserveRound(3, 80*time.Microsecond)
	m.CountRoundFailed("timeout")
	m.CountReservation()
	m.CountReservationFailed()
	m.CountElection()
	m.CountLeaderSuspected()
	m.CountPeerRefused("wiped", "remote")
	m.CountPeerRefused("gopher", "self")
	m.AddMessagesDropped("output_full", 4)
	m.AddProposalsDropped(5)
	m.CountStall()
	m.CountUnknownScript()
	m.SetDatabaseSize(4096)
	m.CountClockBackward()
	m.ObserveStorageWrite(2 * time.Millisecond)
	m.SetCertificateLeft(time.Hour)
	m.ObserveLiveLoad("a", "ok", time.Millisecond)
	m.SetLiveFailing("a", true)
	m.AddLiveStreams("a", 2)
	m.AddLiveStreams("a", -1)
	m.CountLiveCut("a")
	wantLines(t, m,
		`isotone_requests_total{code="ok",protocol="http1"} 1`,
		`isotone_requests_total{code="ok",protocol="resp"} 1000`,
		`isotone_request_duration_seconds_bucket{protocol="http1",le="5e-05"} 0`,
		`isotone_request_duration_seconds_bucket{protocol="http1",le="7.5e-05"} 1`,
		`isotone_request_duration_seconds_count{protocol="resp"} 1`,
		`isotone_timestamps_total 4.294967296e+09`,
		`isotone_batch_requests_sum 3`,
		`isotone_snowflakes_total 5`,
		`isotone_certificate_left_seconds 3600`,
		`isotone_live_loads_total{code="ok",document="a"} 1`,
		`isotone_live_failing{document="a"} 1`,
		`isotone_live_streams{document="a"} 1`,
		`isotone_live_streams_cut_total{document="a"} 1`,
		`isotone_requests_total{code="ok",protocol="thrift"} 1`,
		`isotone_requests_total{code="clock",protocol="thrift"} 1`,
		`isotone_thrift_ids_total{agent="app"} 1`,
		`isotone_round_duration_seconds_bucket{le="2.5e-05"} 0`,
		`isotone_round_duration_seconds_bucket{le="0.0001"} 1`,
		`isotone_round_duration_seconds_bucket{le="1"} 1`,
		`isotone_rounds_failed_total{reason="timeout"} 1`,
		`isotone_reservations_total 1`,
		`isotone_reservation_failures_total 1`,
		`isotone_elections_total 1`,
		`isotone_leader_suspected_total 1`,
		`isotone_peer_refusals_total 2`,
		`isotone_peer_handshake_refusals_total{by="remote",reason="wiped"} 1`,
		`isotone_peer_handshake_refusals_total{by="self",reason="other"} 1`,
		`isotone_peer_messages_dropped_total{reason="output_full"} 4`,
		`isotone_peer_messages_dropped_total{reason="unsendable"} 0`,
		`isotone_proposals_dropped_total 5`,
		`isotone_stalls_total 1`,
		`isotone_redis_scripts_unknown_total 1`,
		`isotone_storage_database_bytes 4096`,
		`isotone_clock_backward_total 1`,
		`isotone_storage_write_seconds_sum 0.002`,
	)
}

func TestSetNode_SetsGaugesAndForgetsPeers(t *testing.T) {
	m := telemetry.NewMetrics("")
	m.SetNode(telemetry.NodeStats{
		Leading: true, LeaderID: 3, Term: 7, Ready: true, CeilingLead: 1500 * time.Millisecond,
		TimeLead: -time.Millisecond, QueueDepth: 5, QueueLimit: 10, StorageFailed: true,
		Workers: 2, IDsRefused: true, ClockOffset: -2 * time.Second,
		ClockExceeded: true, ClockQuorumOffset: time.Hour, ClockQuorumKnown: true, ClockLimit: time.Minute,
		FeatureLevel: 2, FeatureLevelNewest: 3,
		Raft: telemetry.RaftStats{
			LastIndex: 12, CommittedIndex: 11, AppliedIndex: 10, Voters: 5, Learners: 1, Quorum: 3, VotersConnected: 4,
			Timelines: 12, GroupsOwned: 3, WorkersLeased: 7, WorkersLimit: 1024, ClusterID: "00ff", NodeID: "4", WriteUnderWay: time.Second,
		},
		Queues: []telemetry.QueueStats{{Name: "entries not on disk", Length: 3, Max: 4096}, {Name: "posts", Length: 1}},
		Peers: []telemetry.PeerStats{
			{ID: 2, Connected: true, ClockOffset: time.Second, ClockKnown: true, Lag: 6, LagKnown: true, OutputBytes: 99}, {ID: math.MaxUint64},
		},
	})
	wantLines(t, m,
		"isotone_leader 1", "isotone_leader_id 3", "isotone_term 7", "isotone_ready 1",
		"isotone_ceiling_lead_seconds 1.5", "isotone_time_lead_seconds -0.001",
		"isotone_queue_depth 5", "isotone_queue_limit 10", "isotone_storage_failed 1",
		"isotone_snowflake_workers 2", "isotone_snowflake_refused 1", "isotone_clock_offset_seconds -2",
		"isotone_clock_exceeded 1", "isotone_clock_quorum_offset_seconds 3600",
		`isotone_peer_clock_offset_seconds{peer="2"} 1`, `isotone_peer_lag_entries{peer="2"} 6`, `isotone_peer_output_bytes{peer="2"} 99`,
		"isotone_feature_level 2", "isotone_feature_level_newest 3", "isotone_clock_limit_seconds 60",
		"isotone_raft_last_index 12", "isotone_raft_committed_index 11", "isotone_raft_applied_index 10",
		`isotone_members{role="voter"} 5`, `isotone_members{role="learner"} 1`, "isotone_quorum_voters 3", "isotone_voters_connected 4",
		"isotone_cluster_workers_leased 7", "isotone_cluster_timelines 12", "isotone_timeline_groups_owned 3", "isotone_cluster_workers_limit 1024", `isotone_node_info{cluster="00ff",node="4"} 1`,
		"isotone_storage_write_underway_seconds 1",
		`isotone_queue_items{queue="entries_not_on_disk"} 3`, `isotone_queue_items_limit{queue="entries_not_on_disk"} 4096`,
		`isotone_queue_items{queue="posts"} 1`,
		`isotone_peer_connected{peer="2"} 1`, `isotone_peer_connected{peer="18446744073709551615"} 0`,
	)
	m.SetNode(telemetry.NodeStats{Peers: []telemetry.PeerStats{{ID: 2}}})
	wantLines(t, m, "isotone_leader 0", "isotone_ready 0", `isotone_peer_connected{peer="2"} 0`)
	for _, gone := range []string{`peer_clock_offset_seconds{peer="2"}`, `peer_lag_entries{peer="2"}`, `queue_items_limit{queue="posts"}`} {
		if strings.Contains(scrape(t, m), gone) {
			t.Errorf("there is %s, whose value is not known", gone)
		}
	}
	if strings.Contains(scrape(t, m), "\nisotone_clock_quorum_offset_seconds ") {
		t.Error("an offset that is not known any more keeps its series")
	}
	if strings.Contains(scrape(t, m), `peer="18446744073709551615"`) {
		t.Error("a peer that left keeps its series")
	}
}

func TestMetrics_AreSafeForConcurrentUse(t *testing.T) {
	m := telemetry.NewMetrics("")
	var wg sync.WaitGroup
	for id := range uint64(4) {
		wg.Go(func() {
			for range 50 {
				m.ObserveRequest("h2", "ok", time.Millisecond)
				m.ObserveRound(1, time.Millisecond)
				m.SetNode(telemetry.NodeStats{Peers: []telemetry.PeerStats{{ID: id}}})
			}
		})
	}
	for range 3 {
		scrape(t, m)
	}
	wg.Wait()
	wantLines(t, m, `isotone_requests_total{code="ok",protocol="h2"} 200`, "isotone_batch_requests_count 200")
}

func TestMetrics_HotPathDoesNotAllocate(t *testing.T) {
	m := telemetry.NewMetrics("")
	if n := testing.AllocsPerRun(100, func() {
		m.ObserveRequest("http1", "ok", time.Microsecond)
		m.ObserveRound(64, time.Microsecond)
		m.AddTimestamps(64)
		m.CountRoundFailed("stopped")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserveRequest(b *testing.B) {
	m := telemetry.NewMetrics("")
	for b.Loop() {
		m.ObserveRequest("resp", "ok", 60*time.Microsecond)
	}
}

func BenchmarkSetNode(b *testing.B) {
	m := telemetry.NewMetrics("")
	s := telemetry.NodeStats{Peers: []telemetry.PeerStats{{ID: 2}, {ID: 3}}}
	for b.Loop() {
		m.SetNode(s)
	}
}

func TestWatchConnections_AsksWhenScraped(t *testing.T) {
	m := telemetry.NewMetrics("")
	open := 1
	telemetry.WatchConnections(m.Registry(), 20000, 100, func() []telemetry.Connections {
		return []telemetry.Connections{{Protocol: "http1", Open: open}, {Protocol: "h3", Open: 2, Refused: 3, Refusable: true}}
	})
	wantLines(t, m, `isotone_client_connections{protocol="http1"} 1`)
	open = 5
	wantLines(t, m, `isotone_client_connections{protocol="http1"} 5`, `isotone_client_connections{protocol="h3"} 2`,
		`isotone_client_connections_refused_total{protocol="h3"} 3`,
		`isotone_client_connections_limit{port="client"} 20000`, `isotone_client_connections_limit{port="thrift"} 100`)
	if strings.Contains(scrape(t, m), `connections_refused_total{protocol="http1"}`) {
		t.Error("there is a count of what is not counted")
	}
}

// TestRegistry_DescribesWhatIsServed, and nothing else.
func TestRegistry_DescribesWhatIsServed(t *testing.T) {
	m := telemetry.NewMetrics("")
	m.SetNode(telemetry.NodeStats{Peers: []telemetry.PeerStats{{ID: 2, ClockKnown: true, LagKnown: true}}})
	served := map[string]bool{}
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]telemetry.Description{}
	for _, d := range m.Registry().Descriptions() {
		if _, twice := described[d.Name]; twice {
			t.Errorf("%s is described twice", d.Name)
		}
		described[d.Name] = d
	}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "isotone_") {
			continue
		}
		served[name] = true
		d := described[name]
		if d.Help != f.GetHelp() || d.Type != strings.ToLower(f.GetType().String()) || len(d.Labels) != len(f.GetMetric()[0].GetLabel()) {
			t.Errorf("%s is described as %+v", name, d)
		}
	}
	if len(served) < 40 || !served["isotone_peer_lag_entries"] {
		t.Errorf("only %d metrics are served", len(served))
	}
}
