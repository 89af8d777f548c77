// Package config owns the one list of settings: their names, defaults, ranges
// and help, and how a flag, the environment, a file and a default are laid over
// one another. It knows no other package of the module; cmd/isotone embeds
// [Settings] in its commands and hands plain values on.
//
// A flag wins over the environment, the environment over the file, the file
// over the default. An environment variable that is set to nothing counts as
// not set, as in etcd.
package config

import (
	"net"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Settings is everything that can be set, each as the text that was given. Text
// is kept so that [Settings.Validate] can report every fault at once, where a
// typed field would stop the parser at the first.
//
// The zero value is not valid; start from [Default]. Embedded in a kong command
// it fills itself from all four layers, and kong calls Validate: what the
// command's Run sees is valid.
type Settings struct {
	File string `name:"config" env:"ISOTONE_CONFIG" placeholder:"FILE" help:"JSON file of settings, an object with flag names as keys: {\"node-id\": 1}. Flags and environment win over it."`

	NodeID                 Number `name:"node-id" env:"NODE_ID" default:"1" help:"This node's id in the cluster, 1 or more; never given to another node."`
	HTTPHost               string `name:"http-host" env:"HTTP_HOST" placeholder:"HOST" help:"Host name or IP address on which clients are served. Default: every interface."`
	HTTPPort               Number `name:"http-port" env:"HTTP_PORT" default:"8080" help:"TCP port of every client protocol but Thrift, and UDP port of HTTP/3. 0 takes any free port."`
	AdvertiseAddr          string `name:"advertise-addr" env:"ADVERTISE_ADDR" placeholder:"HOST:PORT" help:"Client address of this node as told to clients and members. Default: localhost:HTTP_PORT."`
	RaftAddr               string `name:"raft-addr" env:"RAFT_ADDR" default:"localhost:60001" help:"Address (host:port) on which this node listens for its peers. Port 0 takes any free port."`
	Peers                  string `name:"peers" env:"PEERS" placeholder:"ID=HOST:PORT,..." help:"Peer addresses of the initial members, this node among them: 1=host:port,2=host:port. Default: this node alone."`
	DataDir                string `name:"data-dir" env:"DATA_DIR" default:"_raft" help:"Directory of this node's durable state; made if it does not exist."`
	TLSCert                string `name:"tls-cert" env:"TLS_CERT" placeholder:"FILE" help:"PEM file of the server certificate. Default: cert.pem in DATA_DIR, self-signed if there is none."`
	TLSKey                 string `name:"tls-key" env:"TLS_KEY" placeholder:"FILE" help:"PEM file of the certificate's private key. Default: key.pem in DATA_DIR."`
	TLSClientCA            string `name:"tls-client-ca" env:"TLS_CLIENT_CA" placeholder:"FILE" help:"PEM file of authorities. If set, a client under TLS must show a certificate that one of them signed; clients without TLS are served as ever. Default: no certificate asked for."`
	EpochIntervalMS        Number `name:"epoch-interval-ms" env:"EPOCH_INTERVAL_MS" default:"100" help:"How often the leader advances the epoch and extends the ceiling, in milliseconds, 0 to 60000. 0: time follows the clock at every batch."`
	ClockJumpMaxMS         Number `name:"clock-jump-max-ms" env:"CLOCK_JUMP_MAX_MS" default:"500" help:"How far, in milliseconds, timestamps may follow this node's clock away from the clocks of a quorum, and with a single node how far they follow a jump of its clock, 0 to 86400000. 0: any clock is believed."`
	EpochDeadlineLimit     Number `name:"epoch-deadline-limit" env:"EPOCH_DEADLINE_LIMIT" default:"100" help:"Missed reservations in a row after which the leader hands leadership on, 1 or more."`
	TimestampRequestBuffer Number `name:"timestamp-request-buffer" env:"TIMESTAMP_REQUEST_BUFFER" default:"10000" help:"Requests that may wait for a round, 1 to 1000000; beyond it the answer is: overloaded."`
	ReadMode               string `name:"read-mode" env:"READ_MODE" default:"quorum" help:"What confirms the leadership behind an answer: quorum (a round trip, no clock trusted) or lease (no round trip, trusts the bound on clock rates)."`
	RTTMS                  Number `name:"rtt-ms" env:"RTT_MS" default:"10" help:"One Raft tick in milliseconds, 1 to 10000. The election timeout is 20 to 40 ticks."`
	Forward                Switch `name:"forward" env:"FORWARD" default:"0" help:"Have the leader answer requests for timestamps that reach this node while it does not lead, instead of naming it (0 or 1)."`
	Loops                  Number `name:"loops" env:"LOOPS" default:"0" help:"Event loops that own client connections, 0 to 64. 0: one for every four cores, 1 to 8."`
	ThriftPort             Number `name:"thrift-port" env:"THRIFT_PORT" placeholder:"PORT" help:"TCP port of the Thrift protocol; 0 takes any free port. Default: 7609, if it is free."`
	SnowflakeLayout        string `name:"snowflake-layout" env:"SNOWFLAKE_LAYOUT" default:"41/5/5/12" help:"Bits of time, datacenter, worker and sequence in a snowflake id, 63 in all; or of time, worker and sequence, as 42/10/11. The same on all members, and for good."`
	SnowflakeEpochMS       Number `name:"snowflake-epoch-ms" env:"SNOWFLAKE_EPOCH_MS" default:"1288834974657" help:"From when the time in snowflake ids counts, in unix milliseconds. The same on all members, and for good. Default: as Twitter has it."`
	SnowflakeLeaseMS       Number `name:"snowflake-lease-ms" env:"SNOWFLAKE_LEASE_MS" default:"10000" help:"For how long worker ids are leased, in milliseconds, 1000 to 3600000: so long ids go on without a quorum."`
	SnowflakeWorkers       Number `name:"snowflake-workers" env:"SNOWFLAKE_WORKERS" default:"0" help:"Worker ids of this node, 0 to 64; each makes up to 4096 ids a millisecond. 0: one more than LOOPS."`
	WorkerID               Number `name:"worker-id" env:"WORKER_ID" placeholder:"N" help:"Fixed worker id of this node within its datacenter, refused while another node has it. Default: any that are free."`
	DatacenterID           Number `name:"datacenter-id" env:"DATACENTER_ID" placeholder:"N" help:"Datacenter of WORKER_ID, 0 if not set."`
	Live                   string `name:"live" env:"LIVE" placeholder:"NAME=SOURCE,..." help:"Live documents under /live/NAME, each from file:PATH, redis://host:port/db#key, or an http or https URL."`
	LiveIntervalMS         Number `name:"live-interval-ms" env:"LIVE_INTERVAL_MS" default:"1000" help:"How often live documents are loaded, in milliseconds, 100 to 3600000."`
	LiveOrigins            string `name:"live-origins" env:"LIVE_ORIGINS" placeholder:"ORIGIN,..." help:"Web origins whose pages may read live documents (CORS), as https://example.com; * is all. Default: none."`
	Dashboard              Switch `name:"dashboard" env:"DASHBOARD" default:"1" help:"Serve the dashboard at / (0 or 1)."`
	RequestStats           Switch `name:"request-stats" env:"REQUEST_STATS" default:"0" help:"Measure wall clock and CPU time of every HTTP request, log it, and answer with its X-Request-ID (0 or 1)."`
	RequestStatsSample     Number `name:"request-stats-sample" env:"REQUEST_STATS_SAMPLE" default:"1" help:"With REQUEST_STATS: measure and log one of so many requests, 1 to 1000000."`
	Debug                  Switch `name:"debug" env:"DEBUG" default:"0" help:"Log at debug level (0 or 1)."`
	Pretty                 Switch `name:"pretty" env:"PRETTY" default:"0" help:"Log lines for people instead of JSON (0 or 1)."`
	LogTimeMS              Switch `name:"log-time-ms" env:"LOG_TIME_MS" default:"0" help:"Log the time as unix milliseconds (0 or 1)."`

	// fileFaults is what was wrong with File. It waits here for Validate, which
	// reports it along with the rest.
	fileFaults Faults
}

// Default returns the settings of a node for which nothing was set.
func Default() Settings {
	var s Settings
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		if text, ok := v.Type().Field(i).Tag.Lookup("default"); ok {
			v.Field(i).SetString(text)
		}
	}
	return s
}

// HTTPAddr returns the address to listen on for clients, host:port; the host is
// empty when every interface is meant.
func (s *Settings) HTTPAddr() string {
	return net.JoinHostPort(s.HTTPHost, string(s.HTTPPort))
}

// Advertise returns the client address to tell others. The port is the one that
// was bound, which differs from HTTPPort when that is 0.
func (s *Settings) Advertise(port int) string {
	if s.AdvertiseAddr != "" {
		return s.AdvertiseAddr
	}
	return net.JoinHostPort("localhost", strconv.Itoa(port))
}

// TLSFiles returns the paths of certificate and private key, and whether they
// were set; if not they lie beside the data and may be generated.
func (s *Settings) TLSFiles() (cert, key string, set bool) {
	if s.TLSCert != "" {
		return s.TLSCert, s.TLSKey, true
	}
	return filepath.Join(s.DataDir, "cert.pem"), filepath.Join(s.DataDir, "key.pem"), false
}

// Number is a whole number in decimal, as it was written.
type Number string

// Int returns the number, or 0 if the text is none: [Settings.Validate] has said
// so.
func (n Number) Int() int { return int(n.int64()) }

// Uint64 returns the number as Int does.
func (n Number) Uint64() uint64 { return uint64(n.int64()) }

// Milliseconds returns the time that the number counts in milliseconds.
func (n Number) Milliseconds() time.Duration {
	return time.Duration(n.int64()) * time.Millisecond
}

func (n Number) int64() int64 {
	i, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		return 0
	}
	return i
}

// Switch is on or off, as it was written: 1 or true, 0 or false.
type Switch string

// On reports whether the switch is on; a text that says neither is off.
func (w Switch) On() bool {
	on, _ := w.parse()
	return on
}

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
