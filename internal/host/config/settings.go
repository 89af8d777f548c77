package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/auth/certname"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/snowflake"
)

// PortOff is the value of Settings.ThriftPort and Settings.PDPort for no such port.
const PortOff = -2

// Settings are the settings of one node, parsed and checked by [Flags.Parse].
// The help texts of [Flags] say what each of them means. A value that is built
// otherwise starts from [Default]; nobody checks it again.
type Settings struct {
	NodeID                 uint64
	HTTPHost               string // "": every interface
	HTTPPort               int    // 0: any free port
	AdvertiseAddr          string // "": see Advertise
	RaftAddr               string
	AdminAddr              string        // "": not served
	MetricsAddr            string        // "": not served
	ACLFile                string        // "": no users
	Anonymous              *access.Roles // nil: see access.Config
	RequireTLS             bool
	Peers                  map[uint64]string // nil: see PeerMap
	PeersSRV               *SRV              // where Peers comes from; nil: they are as set
	Join                   []string          // client addresses, host:port or https://host:port; nil: see Peers. With PeersSRV, whichever works
	DataDir                string
	RequireData            bool
	Priority               int64  // as a leader
	TLSCert                string // "": see TLSFiles
	TLSKey                 string
	TLSClientCA            string // "": no client certificate is requested
	TLSClientCRL           string // "": none
	PeerTLSCert            string // "": peers in plaintext
	PeerTLSKey             string
	PeerTLSCA              string
	PeerTLSCRL             string // "": none
	PeerAllowedNames       certname.Rules
	PeerInsecure           bool
	EpochInterval          time.Duration // 0: the time follows the clock at every batch
	ClockJumpMax           time.Duration // 0: trust any clock
	Interval               time.Duration // of the cluster clock; 0: off
	EpochDeadlineLimit     int           // missed reservations
	TimestampRequestBuffer int           // requests
	ReadMode               isotone.ReadMode
	RTT                    time.Duration // one Raft tick
	ShutdownDelay          time.Duration
	Timelines              bool          // see node.Config.Timelines
	GroupSettle            time.Duration // of GROUP_PLACEMENT; see node.Config.GroupSettle
	SlotsOfTimelines       bool          // CLUSTER_SLOTS=timelines
	RedisLocks             bool          // serve libraries for locks in Redis
	Forward                bool
	ForwardCA              string // "": FORWARD without TLS
	ForwardCredentialFile  string // "": none
	Loops                  int    // 0: by the number of cores
	MaxConnections         int    // of the client port
	ThriftPort             int    // 0: any free port; -1: the default one, if it is free; PortOff: none
	PDPort                 int    // 0: any free port; PortOff: none
	PDKeyspaceGroups       string // file; "": none
	SnowflakeLayout        snowflake.Layout
	SnowflakeLease         time.Duration
	SnowflakeWorkers       int // 0: one more than loops
	FixedWorker            int // with its datacenter; -1: any that are free
	Live                   []live.Source
	LiveInterval           time.Duration
	LiveOrigins            []string
	Dashboard              bool
	RequestStats           bool
	RequestStatsSample     int    // one of every N requests
	TraceEndpoint          string // "": nothing is traced
	TraceSample            int    // one of every N requests; 0: none
	TraceFile              string // "": steps are not written
	Debug                  bool
	Pretty                 bool
	LogTimeMS              bool
}

// HTTPAddr returns the address to listen on for clients, host:port; the host is
// empty when every interface is meant.
func (s *Settings) HTTPAddr() string {
	return net.JoinHostPort(s.HTTPHost, strconv.Itoa(s.HTTPPort))
}

// Advertise returns the client address to tell others. The port is the one that
// was bound, which differs from HTTPPort when that is 0.
func (s *Settings) Advertise(port int) string {
	if s.AdvertiseAddr != "" {
		return s.AdvertiseAddr
	}
	return net.JoinHostPort("localhost", strconv.Itoa(port))
}

// PeerMap returns the peer addresses (host:port) of the initial members by node
// ID: Peers, or this node alone at RaftAddr.
func (s *Settings) PeerMap() map[uint64]string {
	if s.Peers != nil {
		return s.Peers
	}
	return map[uint64]string{s.NodeID: s.RaftAddr}
}

// firstNodeID is the default of NODE_ID, by which a node without other settings forms a cluster alone.
const firstNodeID = 1

// CheckAlone returns a [Fault] if this node must not form a cluster alone, for which it is started
// with neither PEERS nor JOIN. A node whose cluster is formed may be started so.
//
// An ID other than 1 means that there are others: nodes that are given IDs and no PEERS would each
// form a cluster, and issue the same timestamps. This is no fault if the data directory is restored,
// because the backup says who forms the cluster.
//
// And others must be able to connect to the peer address, which goes on record for members that are
// added later.
func (s *Settings) CheckAlone(restored bool) error {
	if s.Peers != nil || s.PeersSRV != nil || s.Join != nil {
		return nil
	}
	var f Faults
	if s.NodeID != firstNodeID && !restored {
		own := s.RaftAddr
		if address.Unspecified(own) {
			own = "10.0.0.1:60001"
		}
		f.add("node-id", strconv.FormatUint(s.NodeID, 10), fmt.Sprintf("want PEERS or JOIN as well, or else this node would form a cluster of its own. "+
			"For a new cluster, the same PEERS with all initial members on each of them: PEERS=1=HOST:PORT,%d=%s; for a running one: JOIN=HOST:PORT", s.NodeID, own))
		return f[0]
	}
	if !address.Unspecified(s.RaftAddr) {
		return nil
	}
	f.add("raft-addr", s.RaftAddr, fmt.Sprintf("want an address at which members that are added later reach this node, such as 10.0.0.1:60001; to listen on every interface as well, name it in PEERS: %d=10.0.0.1:60001", s.NodeID))
	return f[0]
}

// TLSFiles returns the paths of the certificate and its private key, and whether
// they were set; if not, they lie beside the data and may be generated.
func (s *Settings) TLSFiles() (cert, key string, set bool) {
	if s.TLSCert != "" {
		return s.TLSCert, s.TLSKey, true
	}
	return filepath.Join(s.DataDir, "cert.pem"), filepath.Join(s.DataDir, "key.pem"), false
}
