package telemetry

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// other replaces every word that is not in the list of its label, so callers cannot
// increase the number of series (I7).
const other = "other"

// The label values, each list closed by other. The methods find a word by a
// linear search: over a dozen short words it beats a map.
var (
	protocols    = [...]string{"http1", "https1", "h2c", "h2", "h3", "grpc", "resp", "thrift", "pd", other}
	requestCodes = [...]string{
		"ok", "not_leader", "no_leader", "overloaded", "deadline_exceeded", "invalid_argument",
		"unauthorized", "forbidden", "quota_exceeded", "no_worker", "no_quorum", "not_found", "clock", "wrong_cluster", "regressed", "internal", other,
	}
	roundFailures = [...]string{"lost_leadership", "timeout", "stopped", other}
)

// Buckets of the histograms, in seconds unless said otherwise.
var (
	// roundBuckets: a round on one machine takes some 50 µs, one that takes a
	// second has failed.
	roundBuckets = []float64{
		25e-6, 50e-6, 75e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1,
	}
	// lockBuckets: from a lock that is free to one that is held for minutes.
	lockBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10, 60, 300}
	// storageBuckets: from a write to memory to a disk in distress.
	storageBuckets = []float64{
		25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
	}
	// batchBuckets counts requests; the last bucket holds the default
	// TIMESTAMP_REQUEST_BUFFER.
	batchBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// Metrics is the metrics of one node, in a registry of their own. Make it with
// [NewMetrics]. All methods are safe for concurrent use, do not block on I/O, and
// those named Observe, Add and Count do not allocate.
type Metrics struct {
	registry *Registry

	requests [len(protocols)][len(requestCodes)]prometheus.Counter
	latency  [len(protocols)]prometheus.Observer

	timestamps    prometheus.Counter
	ids           prometheus.Counter
	thriftAgents  *prometheus.CounterVec
	batch         prometheus.Histogram
	round         prometheus.Histogram
	roundsFailed  [len(roundFailures)]prometheus.Counter
	storageWrite  prometheus.Histogram
	reservations  prometheus.Counter
	reserveFailed prometheus.Counter
	elections     prometheus.Counter
	suspected     prometheus.Counter
	stalls        prometheus.Counter
	scripts       prometheus.Counter
	clockBackward prometheus.Counter
	leasesLost    prometheus.Counter
	leaseServed   prometheus.Counter
	leaseMissed   prometheus.Counter
	floors        [3]prometheus.Counter // in the order of AddFloors

	totals totals
	live   liveMetrics

	node     nodeGauges
	interval intervalGauges
	raft     raftMetrics
	queues   queueGauges
	peers    *peerMetrics
	utc      utcGauges
	session  sessionMetrics
}

// NewMetrics returns metrics at zero, with those of the Go runtime and the
// process beside them. The version is shown in isotone_build_info.
func NewMetrics(version string) *Metrics {
	r := NewRegistry()
	m := &Metrics{
		registry:      r,
		timestamps:    r.Counter("timestamps_total", "Timestamps issued."),
		ids:           r.Counter("snowflakes_total", "Snowflake ids made."),
		thriftAgents:  r.CounterVec("thrift_ids_total", "Ids asked for over Thrift, by user agent: the first ones are told apart.", "agent"),
		batch:         r.Histogram("batch_requests", "Requests confirmed by one round.", batchBuckets),
		round:         r.Histogram("round_duration_seconds", "Time from the start of a confirmation round to its quorum, in seconds.", roundBuckets),
		storageWrite:  r.Histogram("storage_write_seconds", "Time to write and sync one batch of the log, in seconds.", storageBuckets),
		reservations:  r.Counter("reservations_total", "Reservations of time that were committed."),
		reserveFailed: r.Counter("reservation_failures_total", "Reservations of time that were not committed by their deadline."),
		elections:     r.Counter("elections_total", "Changes of leader that this node has seen."),
		suspected:     r.Counter("leader_suspected_total", "Times that this node, as a follower, gave up its leader: it was silent for too long, or its address refused connections."),
		stalls:        r.Counter("stalls_total", "Times that this process did not run for half of the shortest election timeout or longer."),
		scripts:       r.Counter("redis_scripts_unknown_total", "Scripts of Redis clients that were refused, as they are not those of a known library for locks (REDIS_LOCKS)."),
		clockBackward: r.Counter("clock_backward_total", "Times the wall clock was seen to jump back."),
		leasesLost:    r.Counter("leases_lost_total", "Leases that ended, by time or with the leadership."),
		node:          newNodeGauges(r),
		interval:      newIntervalGauges(r),
		utc:           newUTCGauges(r),
		raft:          newRaftMetrics(r),
		queues:        newQueueGauges(r),
		peers:         newPeerMetrics(r),
		live:          newLiveMetrics(r),
		session:       newSessionMetrics(r),
	}
	requests := r.CounterVec("requests_total", "Requests answered, by protocol and by code: ok or an error code.", "protocol", "code")
	latency := r.HistogramVec("request_duration_seconds", "Time from a request's arrival to its answer, in seconds.", roundBuckets, "protocol")
	for p, protocol := range protocols {
		m.latency[p] = latency.WithLabelValues(protocol)
		for c, code := range requestCodes {
			m.requests[p][c] = requests.WithLabelValues(protocol, code)
		}
	}
	roundsFailed := r.CounterVec("rounds_failed_total", "Confirmation rounds that failed, by reason.", "reason")
	for i, reason := range roundFailures {
		m.roundsFailed[i] = roundsFailed.WithLabelValues(reason)
	}
	lease := r.CounterVec("lease_requests_total", "Requests in lease mode, by how they were answered: by the lease, or by a round as there was none.", "answered_by")
	m.leaseServed, m.leaseMissed = lease.WithLabelValues("lease"), lease.WithLabelValues("round")
	floors := r.CounterVec("client_floors_total", "Requests whose client knew a larger timestamp than this leader would have issued, by what was done: time passed it below the ceiling, the floor was raised by a proposal, or the request was refused.", "outcome")
	for i, outcome := range []string{"passed", "raised", "refused"} {
		m.floors[i] = floors.WithLabelValues(outcome)
	}
	r.GaugeVec("build_info", "Always 1; the labels say what runs.", "version", "goversion").
		WithLabelValues(version, runtime.Version()).Set(1)
	return m
}

// Handler serves the metrics as Prometheus text.
func (m *Metrics) Handler() http.Handler {
	return m.registry.Handler()
}

// ObserveRequest counts one answered request and its time from arrival to
// answer. The protocol is http1, https1, h2c, h2, h3, grpc, resp or thrift; the code is
// ok or an error code as clients see it. Other words count as "other".
func (m *Metrics) ObserveRequest(protocol, code string, wall time.Duration) {
	m.ObserveRequests(protocol, code, 1, wall)
}

// Registry returns the registry of the metrics.
func (m *Metrics) Registry() *Registry { return m.registry }

// ObserveRequests counts n requests that were answered together, with one
// observation of the time that they took: a pipeline of thousands costs no more
// than a single request.
func (m *Metrics) ObserveRequests(protocol, code string, n int, wall time.Duration) {
	p := find(protocols[:], protocol)
	m.requests[p][find(requestCodes[:], code)].Add(float64(n))
	m.latency[p].Observe(wall.Seconds())
	m.totals.observe(code, n, wall)
}

// ObserveThrift counts an answer of the Thrift front. The front bounds how many agents
// there are; "" counts none.
func (m *Metrics) ObserveThrift(_, agent, code string) {
	m.requests[find(protocols[:], "thrift")][find(requestCodes[:], code)].Inc()
	m.totals.requests.Add(1)
	if code != requestCodes[0] {
		m.totals.errors.Add(1)
	}
	if agent != "" {
		m.thriftAgents.WithLabelValues(agent).Inc()
	}
}

// AddTimestamps counts n issued timestamps.
func (m *Metrics) AddTimestamps(n uint64) {
	m.timestamps.Add(float64(n))
	m.totals.timestamps.Add(n)
}

// AddIDs counts n snowflake ids.
func (m *Metrics) AddIDs(n uint64) {
	m.ids.Add(float64(n))
	m.totals.ids.Add(n)
}

// ObserveRound counts a confirmation round that reached its quorum, the requests
// that it confirmed, and the time that it took.
func (m *Metrics) ObserveRound(requests int, wall time.Duration) {
	m.batch.Observe(float64(requests))
	m.round.Observe(wall.Seconds())
}

// CountRoundFailed counts a round that did not reach its quorum. The reason is
// lost_leadership, timeout or stopped; other words count as "other".
func (m *Metrics) CountRoundFailed(reason string) {
	m.roundsFailed[find(roundFailures[:], reason)].Inc()
}

// CountReservation counts a reservation that was committed.
func (m *Metrics) CountReservation() { m.reservations.Inc() }

// CountReservationFailed counts a reservation that missed its deadline.
func (m *Metrics) CountReservationFailed() { m.reserveFailed.Inc() }

// AddLeases counts requests in lease mode that a lease answered, those that had to wait for
// a round, and leases that ended.
func (m *Metrics) AddLeases(served, missed, lost uint64) {
	m.leaseServed.Add(float64(served))
	m.leaseMissed.Add(float64(missed))
	m.leasesLost.Add(float64(lost))
}

// AddFloors counts requests that carried a floor above what would have been issued: those that
// time passed below the ceiling, those that raised the floor, and refused ones.
func (m *Metrics) AddFloors(passed, raised, refused uint64) {
	for i, n := range [...]uint64{passed, raised, refused} {
		m.floors[i].Add(float64(n))
	}
}

// CountElection counts a change of leader.
func (m *Metrics) CountElection() { m.elections.Inc() }

// CountLeaderSuspected counts a leader that this follower gave up.
func (m *Metrics) CountLeaderSuspected() { m.suspected.Inc() }

// CountUnknownScript counts a script of a Redis client that is not known. It is safe for concurrent use.
func (m *Metrics) CountUnknownScript() { m.scripts.Inc() }

// CountStall counts a time in which the process did not run.
func (m *Metrics) CountStall() { m.stalls.Inc() }

// CountClockBackward counts a jump back of the wall clock.
func (m *Metrics) CountClockBackward() { m.clockBackward.Inc() }

// ObserveStorageWrite counts one write to the log with its sync.
func (m *Metrics) ObserveStorageWrite(wall time.Duration) { m.storageWrite.Observe(wall.Seconds()) }

// find returns the place of word in list, or of the last element if it is not
// there.
func find(list []string, word string) int {
	for i, w := range list {
		if w == word {
			return i
		}
	}
	return len(list) - 1
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
