// Package config owns the one list of settings: their names, defaults, ranges
// and help, and how flags, the environment, a file and the defaults are merged.
// cmd/isotone embeds [Flags] in its commands and passes [Settings] on.
//
// A flag overrides the environment, the environment overrides the file, and the
// file overrides the default. An environment variable that is set to the empty
// string counts as not set, as in etcd.
package config

import (
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Flags holds the text of every setting. It keeps text so that [Flags.Parse] can
// report every fault at once, where a typed field would stop the parser at the
// first.
//
// Embedded in a kong command, Flags fills itself from all four layers, and kong
// calls Validate: what the command's Run sees can be parsed. The zero value is
// not valid.
type Flags struct {
	File string `name:"config" env:"ISOTONE_CONFIG" placeholder:"FILE" complete:"files" help:"JSON file of settings: an object whose keys are flag names, such as {\"node-id\": 1}. Flags and environment variables override it."`

	NodeID                 string `name:"node-id" env:"NODE_ID" default:"1" help:"ID of this node in the cluster, 1 or more; one other than 1 needs PEERS or JOIN for its first start. Never reuse it for another node. The word ordinal: one more than the number at the end of the host name, as in isotone-0; ordinal,3=104: except that of isotone-3, which is 104."`
	HTTPHost               string `name:"http-host" env:"HTTP_HOST" placeholder:"HOST" help:"Host name or IP address to serve clients on. Default: every interface."`
	HTTPPort               string `name:"http-port" env:"HTTP_PORT" default:"8080" help:"TCP port for every client protocol except Thrift and that of PD, and UDP port for HTTP/3. 0 takes any free port."`
	AdvertiseAddr          string `name:"advertise-addr" env:"ADVERTISE_ADDR" placeholder:"HOST:PORT" help:"Client address of this node as told to clients and other members. Default: localhost:HTTP_PORT."`
	RaftAddr               string `name:"raft-addr" env:"RAFT_ADDR" default:"localhost:60001" help:"Address (host:port) to listen on for peers. Port 0 takes any free port."`
	Peers                  string `name:"peers" env:"PEERS" placeholder:"ID=HOST:PORT,..." help:"Peer addresses of the initial members, including this node: 1=host:port,2=host:port. Or dns+srv:NAME?count=N: N nodes in DNS SRV records. Default: this node alone."`
	Join                   string `name:"join" env:"JOIN" placeholder:"HOST:PORT,..." help:"Client addresses of nodes of a running cluster, or https URLs, to join it with an empty data directory, in place of PEERS. First add this node there: isotone member add. With PEERS=dns+srv:… beside it, a node forms the cluster only if it is an initial one and none answers here."`
	DataDir                string `name:"data-dir" env:"DATA_DIR" default:"_raft" complete:"dirs" help:"Directory of this node's durable state; created if it does not exist."`
	RequireData            Switch `name:"require-data" env:"REQUIRE_DATA" default:"0" help:"Form no cluster with an empty DATA_DIR (0 or 1): its volume may not be mounted. The first start takes isotone init; a node that joins needs none."`
	AdminAddr              string `name:"admin-addr" env:"ADMIN_ADDR" placeholder:"HOST:PORT" help:"Address to serve operators on: /metrics, health checks, the API below /admin/, and profiles of this process below /debug/pprof/. Rights are as on the client port, so clients elsewhere need credentials. Port 0 takes any free port. Default: not served."`
	MetricsAddr            string `name:"metrics-addr" env:"METRICS_ADDR" placeholder:"HOST:PORT" help:"Address to serve monitoring on, without credentials: /metrics and health checks. Port 0 takes any free port. Default: not served."`
	ACLFile                string `name:"acl-file" env:"ACL_FILE" placeholder:"FILE" complete:"files" help:"JSON file of users with roles, secrets and limits, reloaded when it changes; see docs/security.md. Default: there are no users."`
	Anonymous              string `name:"anonymous" env:"ANONYMOUS" placeholder:"ROLE,..." help:"Roles of clients without credentials, from any address: timestamps, ids, workers, live, metrics, admin, floors, timelines, locks, frontier; or all, or none. Default: timestamps, ids and live, from this machine also workers, metrics, locks and frontier, and, if all ports are on loopback addresses, admin; with ACL_FILE, none."`
	RequireTLS             Switch `name:"require-tls" env:"REQUIRE_TLS" default:"0" help:"Refuse clients without TLS on HTTP_PORT, THRIFT_PORT and PD_PORT (0 or 1)."`
	Priority               string `name:"priority" env:"PRIORITY" default:"0" help:"Priority of this node as a leader, -1000 to 1000. A leader transfers its leadership to a connected voter with a higher priority, after it has led for 1000 ticks (RTT_MS)."`
	TLSCert                string `name:"tls-cert" env:"TLS_CERT" placeholder:"FILE" complete:"files" help:"PEM file with the server certificate. Default: cert.pem in DATA_DIR, created self-signed if there is none."`
	TLSKey                 string `name:"tls-key" env:"TLS_KEY" placeholder:"FILE" complete:"files" help:"PEM file with the private key of the certificate. Default: key.pem in DATA_DIR."`
	TLSClientCA            string `name:"tls-client-ca" env:"TLS_CLIENT_CA" placeholder:"FILE" complete:"files" help:"PEM file with CA certificates. If set, a client that uses TLS must present a certificate signed by one of them; clients without TLS are served as before. Default: no client certificate is requested."`
	TLSClientCRL           string `name:"tls-client-crl" env:"TLS_CLIENT_CRL" placeholder:"FILE" complete:"files" help:"PEM file with revocation lists of these CAs. A client whose certificate becomes revoked has no rights any more."`
	PeerTLSCert            string `name:"peer-tls-cert" env:"PEER_TLS_CERT" placeholder:"FILE" complete:"files" help:"PEM file with this node's certificate for its peers, for both directions. With PEER_TLS_KEY and PEER_TLS_CA, connections between nodes use TLS. Replaced files are used without a restart."`
	PeerTLSKey             string `name:"peer-tls-key" env:"PEER_TLS_KEY" placeholder:"FILE" complete:"files" help:"PEM file with the private key of that certificate."`
	PeerTLSCA              string `name:"peer-tls-ca" env:"PEER_TLS_CA" placeholder:"FILE" complete:"files" help:"PEM file with the CA certificates, one of which must have signed the certificate of every peer."`
	PeerTLSCRL             string `name:"peer-tls-crl" env:"PEER_TLS_CRL" placeholder:"FILE" complete:"files" help:"PEM file with revocation lists of these CAs. Connections whose certificate becomes revoked are closed."`
	PeerAllowedNames       string `name:"peer-allowed-names" env:"PEER_ALLOWED_NAMES" placeholder:"NAME,..." help:"Names that the certificates of nodes must have, as DNS names or URIs: 1=NAME,2=NAME for single nodes, or NAME with {id} in place of NODE_ID, or {ordinal} in place of one less. Default: spiffe://ANY-DOMAIN/isotone/node/{id}, as isotone cert node writes it."`
	PeerInsecure           Switch `name:"peer-insecure" env:"PEER_INSECURE" default:"0" help:"Allow peers on other machines in plaintext (0 or 1). With PEER_TLS_CERT, for the time of a change to TLS: TLS is tried first, and peers without it are accepted, too."`
	EpochIntervalMS        string `name:"epoch-interval-ms" env:"EPOCH_INTERVAL_MS" default:"100" help:"How often the leader advances the epoch and extends the ceiling, in milliseconds, 0 to 60000. 0: the time follows the clock at every batch."`
	ClockJumpMaxMS         string `name:"clock-jump-max-ms" env:"CLOCK_JUMP_MAX_MS" default:"500" help:"How far timestamps may follow this node's clock away from the clocks of a quorum, in milliseconds, 0 to 86400000; on a single node, how far they follow a jump of its clock. 0: trust any clock."`
	IntervalMS             string `name:"interval-ms" env:"INTERVAL_MS" default:"0" help:"How long an interval of the cluster clock may be used after the leader was last confirmed, in milliseconds: 20 to 10000, and at least 5 times RTT_MS; 100 suits a LAN. All nodes should have the same. 0: there are no intervals."`
	EpochDeadlineLimit     string `name:"epoch-deadline-limit" env:"EPOCH_DEADLINE_LIMIT" default:"100" help:"Consecutive missed reservations after which the leader transfers leadership, 1 or more."`
	TimestampRequestBuffer string `name:"timestamp-request-buffer" env:"TIMESTAMP_REQUEST_BUFFER" default:"10000" help:"Requests that may wait for a round, 1 to 1000000; further requests are refused as overloaded."`
	ReadMode               string `name:"read-mode" env:"READ_MODE" default:"quorum" complete:"quorum,lease" help:"How the leader confirms its leadership before it answers: quorum (one round trip, trusts no clock) or lease (no round trip, trusts the bound on clock rates)."`
	RTTMS                  string `name:"rtt-ms" env:"RTT_MS" default:"10" help:"Length of a Raft tick in milliseconds, 1 to 10000. A leader that is silent for 10 is replaced."`
	ShutdownDelayMS        string `name:"shutdown-delay-ms" env:"SHUTDOWN_DELAY_MS" default:"0" help:"How long a node that is asked to stop still serves while it reports that it is not ready, in milliseconds, 0 to 600000: as long as load balancers take to notice."`
	GroupPlacement         string `name:"group-placement" env:"GROUP_PLACEMENT" default:"spread" complete:"spread,leader" help:"Who owns timelines: all nodes (spread), or the leader, which takes those whose owner is gone (leader). All nodes should have the same."`
	ClusterSlots           string `name:"cluster-slots" env:"CLUSTER_SLOTS" default:"leader" complete:"leader,timelines" help:"To whom the slots of Redis Cluster belong, as clients are told: all to the leader (leader), or each to the owner of the timelines in it (timelines). All nodes should have the same."`
	RedisLocks             Switch `name:"redis-locks" env:"REDIS_LOCKS" default:"0" help:"Serve libraries for locks in Redis (0 or 1): SET, GET, DEL and others of locks, and the scripts of some libraries; see docs/resp.md. All nodes should have the same."`
	Timelines              Switch `name:"timelines" env:"TIMELINES" default:"0" help:"Permit operators to create and change timelines: named orders of timestamps beside the default one (0 or 1). All nodes should have the same."`
	Forward                Switch `name:"forward" env:"FORWARD" default:"0" help:"Forward timestamp requests to the leader, and those of a timeline to its owner, instead of redirecting the client (0 or 1)."`
	ForwardCA              string `name:"forward-ca" env:"FORWARD_CA" placeholder:"FILE" complete:"files" help:"PEM file with the CA certificates that sign those of the other nodes. If set, FORWARD uses TLS, and https addresses in JOIN are verified by it. The node presents its own certificate to nodes that ask for one. Default: FORWARD uses no TLS, and JOIN trusts the CAs of the system."`
	ForwardCredentialFile  string `name:"forward-credential-file" env:"FORWARD_CREDENTIAL_FILE" placeholder:"FILE" complete:"files" help:"File with one line, NAME:SECRET, by which this node authenticates to others for FORWARD and JOIN; only its owner may have the right to read it. It is read again for each connection. Default: none."`
	Loops                  string `name:"loops" env:"LOOPS" default:"0" help:"I/O loops that own client connections, 0 to 64. 0: one for every four cores, 1 to 8."`
	MaxConnections         string `name:"max-connections" env:"MAX_CONNECTIONS" default:"20000" help:"Connections that HTTP_PORT and PD_PORT may have, of all protocols together, 1 to 1000000; further ones are refused as overloaded. Fewer if the limit of open files (RLIMIT_NOFILE) does not allow as many; the log says so."`
	ThriftPort             string `name:"thrift-port" env:"THRIFT_PORT" placeholder:"PORT" help:"TCP port for Thrift; 0 takes any free port, off none. Default: 7609, if it is free."`
	PDPort                 string `name:"pd-port" env:"PD_PORT" default:"off" placeholder:"PORT" help:"TCP port for the timestamps of PD, TiKV's placement driver; 0 takes any free port, off none. All members must have the same distance between it and the port of their client address; so give all the same HTTP_PORT and PD_PORT."`
	PDKeyspaceGroups       string `name:"pd-keyspace-groups" env:"PD_KEYSPACE_GROUPS" placeholder:"FILE" complete:"files" help:"JSON file that maps keyspaces of PD to keyspace groups, which are timelines; reloaded when it changes. All members must have the same, and PD_PORT and TIMELINES=1. See docs/clients.md. Default: there are no keyspace groups."`
	SnowflakeLayout        string `name:"snowflake-layout" env:"SNOWFLAKE_LAYOUT" default:"41/5/5/12" help:"Bits of time, datacenter, worker and sequence in a Snowflake ID, 63 in all; or of time, worker and sequence, such as 42/10/11; at least 7 of sequence. Must be the same on all members, and must never change."`
	SnowflakeEpochMS       string `name:"snowflake-epoch-ms" env:"SNOWFLAKE_EPOCH_MS" default:"1288834974657" help:"Epoch of the time in Snowflake IDs, in unix milliseconds. Must be the same on all members, and must never change. The default is Twitter's."`
	SnowflakeLeaseMS       string `name:"snowflake-lease-ms" env:"SNOWFLAKE_LEASE_MS" default:"10000" help:"Length of a worker lease in milliseconds, 1000 to 3600000, and at least 5 times RTT_MS: how long a node makes IDs without a quorum."`
	SnowflakeWorkers       string `name:"snowflake-workers" env:"SNOWFLAKE_WORKERS" default:"0" help:"Worker IDs of this node, 0 to 64; each makes up to 4096 IDs a millisecond. 0: LOOPS plus one."`
	WorkerID               string `name:"worker-id" env:"WORKER_ID" placeholder:"N" help:"Fixed worker ID of this node within its datacenter; refused while another node holds it. Default: any free ones."`
	DatacenterID           string `name:"datacenter-id" env:"DATACENTER_ID" placeholder:"N" help:"Datacenter of WORKER_ID. Default: 0."`
	Live                   string `name:"live" env:"LIVE" placeholder:"NAME=SOURCE,..." help:"Live documents under /live/NAME, each from file:PATH, redis://host:port/db#key, an http or https URL, or with isotone-live a mongodb or postgres URL."`
	LiveIntervalMS         string `name:"live-interval-ms" env:"LIVE_INTERVAL_MS" default:"1000" help:"How often live documents are loaded, in milliseconds, 100 to 3600000."`
	LiveOrigins            string `name:"live-origins" env:"LIVE_ORIGINS" placeholder:"ORIGIN,..." help:"Web origins whose pages may read live documents (CORS), such as https://example.com; * allows all. Default: none."`
	Dashboard              Switch `name:"dashboard" env:"DASHBOARD" default:"1" help:"Serve the dashboard at / (0 or 1)."`
	RequestStats           Switch `name:"request-stats" env:"REQUEST_STATS" default:"0" help:"Measure the wall-clock and CPU time of every HTTP request, log it, and echo its X-Request-ID (0 or 1)."`
	RequestStatsSample     string `name:"request-stats-sample" env:"REQUEST_STATS_SAMPLE" default:"1" help:"With REQUEST_STATS: measure and log one of every N requests, 1 to 1000000."`
	TraceEndpoint          string `name:"trace-endpoint" env:"TRACE_ENDPOINT" placeholder:"URL" help:"Send traces of requests to this OpenTelemetry collector, by OTLP over HTTP as JSON, such as http://localhost:4318; without a path, to /v1/traces. Default: nothing is traced."`
	TraceSample            string `name:"trace-sample" env:"TRACE_SAMPLE" default:"100" help:"With TRACE_ENDPOINT: trace one of every N requests that come without a trace, 0 to 1000000; 0: none of them. A request that comes with one is traced if its traceparent is marked as sampled."`
	TraceFile              string `name:"trace-file" env:"TRACE_FILE" placeholder:"FILE" complete:"files" help:"Append the protocol trace of this node to this file, for isotone verify trace; see docs/verify.md. It grows without bound, by some hundred bytes a request, and the node waits for each write. Default: no trace is written."`
	Debug                  Switch `name:"debug" env:"DEBUG" default:"0" help:"Log at debug level (0 or 1)."`
	Pretty                 Switch `name:"pretty" env:"PRETTY" default:"0" help:"Write log lines for people instead of JSON (0 or 1)."`
	LogTimeMS              Switch `name:"log-time-ms" env:"LOG_TIME_MS" default:"0" help:"Log the time as unix milliseconds (0 or 1)."`

	// fileFaults is what is wrong with the file. [Flags.Parse] reports it along
	// with the rest.
	fileFaults Faults
}

// Default returns the settings of a node for which nothing was set.
func Default() Settings {
	var f Flags
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		if text, ok := v.Type().Field(i).Tag.Lookup("default"); ok {
			v.Field(i).SetString(text)
		}
	}
	s, err := f.Parse()
	if err != nil {
		panic(err) // a default above is wrong
	}
	return s
}

// Switch is the text of a flag that is on or off: 1 or true, 0 or false.
type Switch string

func (w Switch) parse() (on, ok bool) {
	switch strings.ToLower(string(w)) {
	case "1", "true":
		return true, true
	case "0", "false":
		return false, true
	}
	return false, false
}

// IsBool lets --debug stand for --debug=1.
func (w *Switch) IsBool() bool { return true }

// Decode takes the text that follows the flag, if any. It accepts every text.
func (w *Switch) Decode(ctx *kong.DecodeContext) error {
	*w = "1"
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		return nil
	}
	return ctx.Scan.PopValueInto("0 or 1", (*string)(w))
}
