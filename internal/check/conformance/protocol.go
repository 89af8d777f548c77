package conformance

// This file is the protocol of drivers, as conformance/README.md describes it.

// ProtocolVersion is the version of the protocol of drivers.
const ProtocolVersion = 1

// lineMax bounds a line of either side; 65,536 IDs have 1.5 MiB.
const lineMax = 4 << 20

// Command is a line for a driver.
type Command struct {
	ID         int      `json:"id"`
	Do         string   `json:"do"`
	Protocol   int      `json:"protocol,omitempty"`
	Client     string   `json:"client,omitempty"`
	Generator  string   `json:"generator,omitempty"`
	Options    *Options `json:"options,omitempty"`
	Method     string   `json:"method,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	Above      string   `json:"above,omitempty"`
	Count      *uint64  `json:"count,omitempty"`
	Call       int      `json:"call,omitempty"`
	DeadlineMS int64    `json:"deadline_ms,omitempty"`
	LeaseMS    int64    `json:"lease_ms,omitempty"`
	Worker     *int     `json:"worker,omitempty"`
	NowMS      *int64   `json:"now_ms,omitempty"`
	AheadMaxMS *int64   `json:"ahead_max_ms,omitempty"`
	User       string   `json:"user,omitempty"`
	Secret     string   `json:"secret,omitempty"`
	Clock      string   `json:"clock,omitempty"`
	Timestamp  string   `json:"timestamp,omitempty"`
}

// Options are those of a client.
type Options struct {
	Addrs         []string `json:"addrs"`
	Cluster       string   `json:"cluster,omitempty"`
	Floor         string   `json:"floor,omitempty"`
	Mode          string   `json:"mode,omitempty"`
	Connections   int      `json:"connections,omitempty"`
	QueueMax      int      `json:"queue_max,omitempty"`
	DialTimeoutMS int64    `json:"dial_timeout_ms,omitempty"`
	Lazy          bool     `json:"lazy,omitempty"`
	User          string   `json:"user,omitempty"`
	Secret        string   `json:"secret,omitempty"`
	TLS           *TLS     `json:"tls,omitempty"`
}

// TLS are the options of a client for TLS, in PEM.
type TLS struct {
	CA         string `json:"ca"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`
}

// Reply is a line of a driver: the answer to the command with its ID, or an event.
type Reply struct {
	ID      int     `json:"id,omitempty"`
	OK      *Result `json:"ok,omitempty"`
	Error   string  `json:"error,omitempty"`
	Message string  `json:"message,omitempty"`
	Event   string  `json:"event,omitempty"`
	Client  string  `json:"client,omitempty"`
	Addr    string  `json:"addr,omitempty"`
}

// Result is that of a command that succeeded.
type Result struct {
	Protocol int      `json:"protocol,omitempty"`
	Client   string   `json:"client,omitempty"`
	Version  string   `json:"version,omitempty"`
	Features []string `json:"features,omitempty"`
	First    string   `json:"first,omitempty"`
	Count    uint64   `json:"count,omitempty"`
	IDs      []string `json:"ids,omitempty"`
	Cluster  string   `json:"cluster,omitempty"`
	Worker   int      `json:"worker,omitempty"`
	Start    int64    `json:"start,omitempty"`
	End      int64    `json:"end,omitempty"`

	Earliest   string   `json:"earliest,omitempty"`
	Latest     string   `json:"latest,omitempty"`
	Term       string   `json:"term,omitempty"`
	Timestamps []string `json:"timestamps,omitempty"`
	Past       bool     `json:"past,omitempty"`
}

// Features that a driver may name.
const (
	featConnections = "connections"
	featQueue       = "queue_max"
	featCredentials = "credentials"
	featTLS         = "tls"
	featCertificate = "client_certificate"
	featAbove       = "above"
	featLazy        = "lazy"
	featEvents      = "events"
	featGenerator   = "generator"
	featNow         = "generator_clock"
	featClock       = "clock"
)

// codes are the errors that a driver may answer with.
var codes = []string{
	"invalid_argument", "no_leader", "overloaded", "deadline_exceeded", "unauthorized", "forbidden", "quota_exceeded", "no_worker",
	"clock", "wrong_cluster", "regressed", "internal", "canceled", "closed", "unsupported",
}
