package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/live"
)

// groupSettle is how long a node has to be connected before timelines are moved to it from another that serves them: a node that comes and goes
// should not have them come and go.
const groupSettle = 30 * time.Second

// Limits of the numbers. The defaults lie well inside; the limits keep a typing
// error from becoming a cluster that never elects or never answers.
const (
	priorityMax = 1000
	// nodeIDMax leaves 16 bits of a member ID; see internal/core/oracle.
	nodeIDMax = 1<<48 - 1
	portMax   = address.PortMax
	// peersMax: larger clusters grow by adding members.
	peersMax = 64
	// epochIntervalMSMax: an epoch of a minute makes a failover skip a minute.
	epochIntervalMSMax = 60_000
	// clockJumpMaxMSMax: a limit above a day is no limit; 0 trusts any clock.
	clockJumpMaxMSMax = 86_400_000
	// intervalMSMin and intervalMSMax are those of internal/core/interval.
	intervalMSMin = 20
	intervalMSMax = 10_000
	// intervalTicksMin: the leader begins a round every tick, and the limit of an interval has to
	// outlast some that are late.
	intervalTicksMin = 5
	// epochDeadlineLimitMax: no count of missed reservations beyond it differs
	// from "never".
	epochDeadlineLimitMax = 1_000_000_000
	// sequenceBitsMin: a worker makes IDs up to snowflake.AheadDefault ahead of the clock. With 7 bits that are 128,128 at once;
	// with 6 bits they would be 64,064, fewer than the 65,536 of the largest request.
	sequenceBitsMin = 7
	// timestampRequestBufferMax: a waiting request costs some hundred bytes.
	timestampRequestBufferMax = 1_000_000
	// rttMSMax: forty such ticks are an election timeout of 400 seconds.
	rttMSMax = 10_000
	// shutdownDelayMSMax: no load balancer takes longer, and supervisors kill much earlier.
	shutdownDelayMSMax = 600_000
	// snowflakeLeaseMSMin: when the leader is lost, a renewal takes an election timeout.
	snowflakeLeaseMSMin = 1_000
	// snowflakeLeaseTicksMin: a lease is renewed after a quarter of it, and again every tick.
	snowflakeLeaseTicksMin = 5
	snowflakeLeaseMSMax    = 3_600_000
	snowflakeWorkersMax    = 64
	// snowflakeEpochSecondsMax: as milliseconds it is in 1973, as seconds in the year 5138.
	snowflakeEpochSecondsMax = 100_000_000_000
	// snowflakeEpochMSMax is the end of the year 9999.
	snowflakeEpochMSMax = 253_402_300_799_999
	// liveIntervalMSMin: readers see no more than ten changes a second.
	liveIntervalMSMin = 100
	liveIntervalMSMax = 3_600_000
	// requestStatsSampleMax: a fast node still logs some lines a minute.
	requestStatsSampleMax = 1_000_000
	// TraceSampleMax: as requestStatsSampleMax.
	TraceSampleMax = 1_000_000
	// maxConnectionsMax: their buffers alone are tens of gigabytes.
	maxConnectionsMax = 1_000_000
	// loopsMax: more loops than cores gain nothing.
	loopsMax = 64
	// leasedWorkersMax is how many worker IDs a cluster leases at most.
	leasedWorkersMax = 1024
)

// Parse returns the settings, or a [Faults] that lists everything that is wrong.
// It changes nothing and touches neither disk nor network; NODE_ID may ask for the host name.
func (f *Flags) Parse() (Settings, error) {
	p := parser{append(Faults(nil), f.fileFaults...)}
	s := Settings{
		HTTPHost: f.HTTPHost, AdvertiseAddr: f.AdvertiseAddr, RaftAddr: f.RaftAddr, AdminAddr: f.AdminAddr, MetricsAddr: f.MetricsAddr, DataDir: f.DataDir,
		TLSCert: f.TLSCert, TLSKey: f.TLSKey, TLSClientCA: f.TLSClientCA, TLSClientCRL: f.TLSClientCRL, ACLFile: f.ACLFile, TraceFile: f.TraceFile,
		ForwardCA: f.ForwardCA, ForwardCredentialFile: f.ForwardCredentialFile,
	}
	p.addresses(f, &s)
	p.files(f)
	if f.TLSClientCRL != "" && f.TLSClientCA == "" {
		p.faults.add("tls-client-crl", f.TLSClientCRL, "want TLS_CLIENT_CA as well: without it no certificate is looked at")
	}
	p.peerTLS(f, &s)
	s.EpochInterval = p.milliseconds("epoch-interval-ms", f.EpochIntervalMS, 0, epochIntervalMSMax)
	s.ClockJumpMax = p.milliseconds("clock-jump-max-ms", f.ClockJumpMaxMS, 0, clockJumpMaxMSMax)
	s.EpochDeadlineLimit = int(p.number("epoch-deadline-limit", f.EpochDeadlineLimit, 1, epochDeadlineLimitMax))
	s.TimestampRequestBuffer = int(p.number("timestamp-request-buffer", f.TimestampRequestBuffer, 1, timestampRequestBufferMax))
	var err error
	if s.ReadMode, err = isotone.ParseReadMode(f.ReadMode); err != nil {
		p.faults.add("read-mode", f.ReadMode, "want quorum or lease")
	}
	p.timelines(f, &s)
	s.RTT = p.milliseconds("rtt-ms", f.RTTMS, 1, rttMSMax)
	s.Interval = p.interval(f.IntervalMS, s.RTT)
	if s.Interval > 0 && s.EpochInterval > epochWithIntervalMax {
		p.faults.add("epoch-interval-ms", f.EpochIntervalMS, fmt.Sprintf("want at most %d with INTERVAL_MS: each change of leader puts the cluster clock ahead by four times as much",
			epochWithIntervalMax.Milliseconds()))
	}
	s.ShutdownDelay = p.milliseconds("shutdown-delay-ms", f.ShutdownDelayMS, 0, shutdownDelayMSMax)
	s.Loops = int(p.number("loops", f.Loops, 0, loopsMax))
	s.MaxConnections = int(p.number("max-connections", f.MaxConnections, 1, maxConnectionsMax))
	s.ThriftPort = -1
	if f.ThriftPort != "" {
		s.ThriftPort = p.port("thrift-port", f.ThriftPort)
	}
	p.pd(f, &s)
	p.snowflakes(f, &s)
	s.LiveInterval = p.milliseconds("live-interval-ms", f.LiveIntervalMS, liveIntervalMSMin, liveIntervalMSMax)
	s.RedisLocks = p.onOff("redis-locks", f.RedisLocks)
	s.RequireData = p.onOff("require-data", f.RequireData)
	s.RequireTLS = p.onOff("require-tls", f.RequireTLS)
	if s.RequireTLS && f.AdminAddr != "" && !isLoopback(f.AdminAddr) {
		p.faults.add("admin-addr", f.AdminAddr, "want an address of this machine such as 127.0.0.1:9090, as REQUIRE_TLS is set: this port has no TLS. Operators elsewhere use the client port")
	}
	p.forwarding(f, &s)
	s.Dashboard = p.onOff("dashboard", f.Dashboard)
	s.RequestStats = p.onOff("request-stats", f.RequestStats)
	s.RequestStatsSample = int(p.number("request-stats-sample", f.RequestStatsSample, 1, requestStatsSampleMax))
	s.TraceEndpoint = p.traceEndpoint(f.TraceEndpoint)
	s.TraceSample = int(p.number("trace-sample", f.TraceSample, 0, TraceSampleMax))
	s.Debug = p.onOff("debug", f.Debug)
	s.Pretty = p.onOff("pretty", f.Pretty)
	s.LogTimeMS = p.onOff("log-time-ms", f.LogTimeMS)
	p.documents(f, &s)
	if len(p.faults) > 0 {
		return Settings{}, p.faults
	}
	return s, nil
}

// Validate returns the error of [Flags.Parse].
func (f *Flags) Validate() error {
	_, err := f.Parse()
	return err
}

// parser turns texts into values and collects what is wrong with them. The value
// of a text that is wrong means nothing.
type parser struct{ faults Faults }

// port parses the number of a port that may be off.
func (p *parser) port(name, text string) int {
	if text == "off" {
		return PortOff
	}
	n, ok := within(text, 0, portMax)
	if !ok {
		p.faults.add(name, text, fmt.Sprintf("want off, or a whole number from 0 to %d", portMax))
	}
	return int(n)
}

// addresses parses who this node is and where it and its peers listen.
func (p *parser) addresses(f *Flags, s *Settings) {
	s.NodeID = p.nodeID(f.NodeID)
	if !address.ValidHost(f.HTTPHost) && f.HTTPHost != "" {
		p.faults.add("http-host", f.HTTPHost, "want a host name or an IP address, without a port; or nothing, for every interface")
	}
	s.HTTPPort = int(p.number("http-port", f.HTTPPort, 0, portMax))
	if f.AdvertiseAddr != "" && p.specified("advertise-addr", f.AdvertiseAddr, f.AdvertiseAddr, "clients and other members") {
		p.hostPort("advertise-addr", f.AdvertiseAddr, f.AdvertiseAddr, 1)
	}
	p.hostPort("raft-addr", f.RaftAddr, f.RaftAddr, 0)
	if f.AdminAddr != "" {
		p.hostPort("admin-addr", f.AdminAddr, f.AdminAddr, 0)
	}
	if f.MetricsAddr != "" {
		p.hostPort("metrics-addr", f.MetricsAddr, f.MetricsAddr, 0)
	}
	if f.Anonymous != "" {
		roles, err := access.ParseRoles(strings.Split(f.Anonymous, ","))
		if err != nil {
			p.faults.add("anonymous", f.Anonymous, err.Error())
		}
		s.Anonymous = &roles
	}
	p.members(f, s)
	s.Priority = p.number("priority", f.Priority, -priorityMax, priorityMax)
}

// members parses PEERS and JOIN. Both together are for machines with the same settings: PEERS is
// for those of the initial members then, by the number in their names, and JOIN for all.
func (p *parser) members(f *Flags, s *Settings) {
	switch {
	case strings.HasPrefix(f.Peers, srvScheme):
		s.PeersSRV = p.srv(f.Peers, s.NodeID, f.Join != "")
	case f.Peers != "":
		s.Peers = p.peers(f, s.NodeID)
	}
	if f.Join == "" {
		return
	}
	s.Join = p.join(f)
	switch v := s.PeersSRV; {
	case f.Peers == "" || v == nil && strings.HasPrefix(f.Peers, srvScheme): // or it has a fault already
	case v == nil || v.ByPriority:
		p.faults.add("join", f.Join, "want JOIN or PEERS, not both, unless PEERS is dns+srv:NAME?count=N: PEERS is for the initial members of a new cluster, JOIN for a node that is added later")
	case s.NodeID > uint64(v.Count):
		s.PeersSRV = nil
	}
}

// pd parses PD_PORT and PD_KEYSPACE_GROUPS.
func (p *parser) pd(f *Flags, s *Settings) {
	s.PDPort, s.PDKeyspaceGroups = p.port("pd-port", f.PDPort), f.PDKeyspaceGroups
	if s.PDKeyspaceGroups != "" && (s.PDPort == PortOff || !s.Timelines) {
		p.faults.add("pd-keyspace-groups", f.PDKeyspaceGroups, "it needs PD_PORT, and TIMELINES=1, as keyspace groups are timelines")
	}
}

// timelines parses TIMELINES, GROUP_PLACEMENT and CLUSTER_SLOTS.
func (p *parser) timelines(f *Flags, s *Settings) {
	s.Timelines = p.onOff("timelines", f.Timelines)
	switch f.GroupPlacement {
	case "leader":
	case "spread":
		s.GroupSettle = groupSettle
	default:
		p.faults.add("group-placement", f.GroupPlacement, "want spread or leader")
	}
	if s.SlotsOfTimelines = f.ClusterSlots == "timelines"; !s.SlotsOfTimelines && f.ClusterSlots != "leader" {
		p.faults.add("cluster-slots", f.ClusterSlots, "want leader or timelines")
	}
}

// forwarding parses FORWARD, and refuses what could reach no leader, or would send a secret to another
// machine in plaintext.
func (p *parser) forwarding(f *Flags, s *Settings) {
	s.Forward = p.onOff("forward", f.Forward)
	if s.Forward && s.RequireTLS && s.ForwardCA == "" {
		p.faults.add("forward-ca", "", "want a file, as FORWARD and REQUIRE_TLS are set: the leader refuses what is forwarded without TLS")
	}
	if s.ForwardCredentialFile == "" {
		return
	}
	isElsewhere := func(addr string) bool { return !isLoopback(addr) }
	if s.Forward && s.ForwardCA == "" && slices.ContainsFunc(slices.Collect(maps.Values(s.Peers)), isElsewhere) {
		p.faults.add("forward-ca", "", "want a file, as FORWARD and FORWARD_CREDENTIAL_FILE are set: without TLS the secret would cross the network in plaintext")
	}
	for _, addr := range s.Join {
		if !strings.HasPrefix(addr, httpsPrefix) && isElsewhere(addr) {
			p.faults.add("join", addr, "want "+httpsPrefix+addr+", as FORWARD_CREDENTIAL_FILE is set: without TLS the secret would cross the network in plaintext")
		}
	}
}

func (p *parser) files(f *Flags) {
	if f.DataDir == "" {
		p.faults.add("data-dir", f.DataDir, "want the path of a directory")
	}
	if f.TLSCert == "" && f.TLSKey != "" {
		p.faults.add("tls-cert", f.TLSCert, "want a file, as TLS_KEY is set: both or neither")
	}
	if f.TLSCert != "" && f.TLSKey == "" {
		p.faults.add("tls-key", f.TLSKey, "want a file, as TLS_CERT is set: both or neither")
	}
}

// peers parses PEERS. The node's own ID is 0 if it is not valid.
func (p *parser) peers(f *Flags, own uint64) map[uint64]string {
	peers := map[uint64]string{}
	taken := map[string]bool{}
	before := len(p.faults)
	if n := strings.Count(f.Peers, ",") + 1; n > peersMax {
		p.faults.add("peers", "", fmt.Sprintf("want at most %d initial members, and not %d; add further ones later: isotone member add", peersMax, n))
		return nil
	}
	for entry := range strings.SplitSeq(f.Peers, ",") {
		entry = strings.TrimSpace(entry)
		text, addr, _ := strings.Cut(entry, "=")
		id, ok := within(text, 1, nodeIDMax)
		switch {
		case !ok:
			p.faults.add("peers", entry, "want id=host:port with an id of 1 or more")
		case peers[uint64(id)] != "":
			p.faults.add("peers", entry, "want every id once")
		case taken[addr]:
			p.faults.add("peers", entry, "want every address once")
		case !p.specified("peers", entry, addr, "the other members"):
		case p.hostPort("peers", entry, addr, 1):
			peers[uint64(id)] = addr
			taken[addr] = true
		}
	}
	switch {
	case own == 0 || len(p.faults) > before:
	case peers[own] == "":
		p.faults.add("peers", f.Peers, fmt.Sprintf("want an entry for this node, NODE_ID %d", own))
	case isLoopback(peers[own]):
		p.reachable(peers, own)
	}
	return peers
}

// reachable records a fault if others in PEERS are on other machines than this node, whose own entry only its own
// machine can dial. The same list is for all members: it is what they dial, and what goes on record.
func (p *parser) reachable(peers map[uint64]string, own uint64) {
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		if !isLoopback(peers[id]) {
			p.faults.add("peers", fmt.Sprintf("%d=%s", own, peers[own]), fmt.Sprintf("want the address at which node %d and the other members reach this node, "+
				"such as 10.0.0.1:60001: the same list on all machines; RAFT_ADDR says where this node listens", id))
			return
		}
	}
}

// httpsPrefix begins an address in JOIN that is reached through TLS.
const httpsPrefix = "https://"

// join parses JOIN.
func (p *parser) join(f *Flags) (addrs []string) {
	for entry := range strings.SplitSeq(f.Join, ",") {
		entry = strings.TrimSpace(entry)
		addr, secure := strings.CutPrefix(entry, httpsPrefix)
		if address.Unspecified(addr) {
			p.faults.add("join", entry, "want a host name or an IP address at which this node reaches one of the cluster, such as 10.0.0.1")
		} else if p.hostPort("join", entry, addr, 1) {
			if secure {
				addr = httpsPrefix + addr
			}
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// documents parses the settings of live documents.
func (p *parser) documents(f *Flags, s *Settings) {
	add := func(flag string, err error) {
		var faults live.Faults
		errors.As(err, &faults)
		for _, fault := range faults {
			p.faults.add(flag, strings.Trim(fault.Entry, `"`), fault.Want) // Fault.Error adds quotes
		}
	}
	var err error
	s.Live, err = live.Parse(f.Live)
	add("live", err)
	s.LiveOrigins, err = live.ParseOrigins(f.LiveOrigins)
	add("live-origins", err)
}

// number returns the whole number in text, which is from low to high; else it
// records a fault and returns 0.
func (p *parser) number(flag, text string, low, high int64) int64 {
	n, ok := within(text, low, high)
	if !ok {
		p.faults.add(flag, text, fmt.Sprintf("want a whole number from %d to %d", low, high))
	}
	return n
}

// epochWithIntervalMax bounds EPOCH_INTERVAL_MS where there is a cluster clock.
const epochWithIntervalMax = 500 * time.Millisecond

// interval parses INTERVAL_MS. The length of a tick is 0 if that is not valid.
func (p *parser) interval(text string, tick time.Duration) time.Duration {
	if text == "0" {
		return 0
	}
	ms, ok := within(text, intervalMSMin, intervalMSMax)
	d := time.Duration(ms) * time.Millisecond
	switch {
	case !ok:
		p.faults.add("interval-ms", text, fmt.Sprintf("want 0, for no intervals, or a whole number from %d to %d", intervalMSMin, intervalMSMax))
	case d < intervalTicksMin*tick:
		p.faults.add("interval-ms", text, fmt.Sprintf("want at least %d times RTT_MS, so %d or more, or 0 for no intervals: the leader is confirmed once in RTT_MS, and an interval has to outlast a few that are late",
			intervalTicksMin, (intervalTicksMin*tick).Milliseconds()))
	}
	return d
}

func (p *parser) milliseconds(flag, text string, low, high int64) time.Duration {
	return time.Duration(p.number(flag, text, low, high)) * time.Millisecond
}

func (p *parser) onOff(flag string, w Switch) bool {
	on, ok := w.parse()
	if !ok {
		p.faults.add(flag, string(w), "want 0, 1, true or false")
	}
	return on
}

// hostPort reports whether addr is host:port with a port of at least portMin. If
// not, it records a fault with the given value.
func (p *parser) hostPort(flag, value, addr string, portMin int64) bool {
	if address.Valid(addr, portMin) {
		return true
	}
	p.faults.add(flag, value, fmt.Sprintf("want host:port with a port from %d to %d, at most %d bytes in all", portMin, portMax, address.SizeMax))
	return false
}

// specified reports whether addr names a host. If it is [address.Unspecified], it records a fault that
// says who has to connect to it.
func (p *parser) specified(flag, value, addr, who string) bool {
	if !address.Unspecified(addr) {
		return true
	}
	p.faults.add(flag, value, fmt.Sprintf("want a host name or an IP address at which %s reach the node, such as 10.0.0.1; only HTTP_HOST and RAFT_ADDR, where it listens, may be every interface", who))
	return false
}

// within returns the whole number in text if it is from low to high; else 0 and
// false.
func within(text string, low, high int64) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, false
	}
	return n, true
}
