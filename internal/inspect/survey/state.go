package survey

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// StateBytesMax bounds the size of a state document, far above that of a hundred members.
const StateBytesMax = 4 << 20

// State is the state document: one node's view of itself and of the cluster. The node encodes it
// once a second, and serves it at /state and /live/state/stream, where the page reads it. 64-bit
// integers that can exceed 2^53 are strings in JSON, because JavaScript would round them.
type State struct {
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
	// ClusterID is an isotone.ClusterID in text; empty while the node does not know it.
	ClusterID string `json:"clusterID,omitempty"`
	Node      Node   `json:"node"`
	// Leader is nil while none is known.
	Leader *Leader `json:"leader"`
	Term   uint64  `json:"term"`
	// Epoch is the time of the timestamps that the leader is issuing; nil on any other node.
	Epoch *Mark `json:"epoch"`
	// Ceiling is the bound of issued time; nil until one is known.
	Ceiling  *Mark    `json:"ceiling"`
	ReadMode string   `json:"readMode"`
	Rates    Rates    `json:"rates"`
	Latency  Latency  `json:"latency"`
	Totals   Totals   `json:"totals"`
	Members  []Member `json:"members"`
	Clock    Clock    `json:"clock"`
	// Interval is nil unless INTERVAL_MS is set.
	Interval *Interval `json:"interval"`
	// Timelines is nil if the cluster has none, and the node permits none.
	Timelines *Timelines `json:"timelines,omitempty"`
	// Locks is nil unless the node leads and has sessions, locks or groups of writers.
	Locks *Locks `json:"locks,omitempty"`
	// Workers are the worker leases that this node holds.
	Workers []Worker `json:"workers"`
	// Elections are the latest changes of leader that this node has seen, oldest first.
	Elections []Election `json:"elections"`
	// LastMove is the latest move of time far ahead of the clock that this node has seen; nil if there was none since it started.
	LastMove *Move    `json:"lastMove,omitempty"`
	History  *History `json:"history,omitempty"`
}

// Node describes the node that made the document.
type Node struct {
	ID            uint64  `json:"id"`
	Addr          string  `json:"addr"` // client address
	Role          string  `json:"role"` // leader, follower, candidate or learner
	Ready         bool    `json:"ready"`
	NotReady      string  `json:"notReady"` // why it is not ready, or empty
	Forming       bool    `json:"forming"`  // the founders have yet to form the cluster
	Draining      bool    `json:"draining"` // it is about to end, and therefore not ready
	UptimeSeconds float64 `json:"uptimeSeconds"`
	Loops         int     `json:"loops"`
}

// Leader is the node to send requests to.
type Leader struct {
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr"`
}

// Mark is a time of timestamps, and how far it is ahead of the node's own clock.
type Mark struct {
	Time        uint64  `json:"time,string"` // unix nanoseconds
	LeadSeconds float64 `json:"leadSeconds"` // negative: behind
}

// Rates are those of the node itself, over the last interval.
type Rates struct {
	TimestampsPerSecond float64 `json:"timestampsPerSecond"`
	RequestsPerSecond   float64 `json:"requestsPerSecond"`
	IDsPerSecond        float64 `json:"idsPerSecond"`
	ErrorsPerSecond     float64 `json:"errorsPerSecond"`
}

// Latency is that of the node's own requests in the last interval, in seconds; nil if there
// were none.
type Latency struct {
	P50  *float64 `json:"p50"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// Totals are counts since the node started.
type Totals struct {
	Timestamps uint64 `json:"timestamps,string"`
	Requests   uint64 `json:"requests,string"`
	IDs        uint64 `json:"ids,string"`
	Errors     uint64 `json:"errors,string"`
}

// Member is one member of the cluster as the node sees it.
type Member struct {
	NodeID   uint64 `json:"nodeID"`
	Addr     string `json:"addr"` // client address; empty until it is known
	PeerAddr string `json:"peerAddr"`
	// OtherAddr is the peer address in PEERS of the node, if that is not PeerAddr, the one on record.
	OtherAddr string `json:"otherAddr,omitempty"`
	Learner   bool   `json:"learner"`
	Self      bool   `json:"self"`
	Connected bool   `json:"connected"`
	// LagEntries is the number of log entries that the member lacks; nil except on the leader.
	LagEntries *uint64 `json:"lagEntries"`
	// ClockOffsetSeconds is the member's clock minus the node's own; nil when unknown.
	ClockOffsetSeconds *float64 `json:"clockOffsetSeconds"`
	Leader             bool     `json:"leader"`
}

// Clock compares the node's clock with those of the others.
type Clock struct {
	OffsetFromMedianSeconds float64 `json:"offsetFromMedianSeconds"`
	OK                      bool    `json:"ok"`
	// OffsetFromQuorumSeconds is the node's clock minus the quorum's clock; nil while too few
	// clocks are known. If SoleVoter it is how far the node's wall clock has jumped.
	OffsetFromQuorumSeconds *float64 `json:"offsetFromQuorumSeconds"`
	// Exceeded is set while that is beyond LimitSeconds, so that the node does not use its
	// wall clock.
	Exceeded bool `json:"exceeded"`
	// SoleVoter is set while the node is the sole voter, so that no other can confirm its clock.
	SoleVoter bool `json:"alone"`
	// LimitSeconds is CLOCK_JUMP_MAX_MS in seconds; 0 accepts any clock.
	LimitSeconds float64 `json:"limitSeconds"`
	// UTC is what the node's machine says about its wall clock; nil if it says nothing.
	UTC *UTC `json:"utc"`
}

// UTC says how far a wall clock may be from UTC. It is information only.
type UTC struct {
	Source       string `json:"source"` // clockbound or kernel
	Synchronized bool   `json:"synchronized"`
	// ErrorSeconds bounds the distance; nil if there is no bound.
	ErrorSeconds *float64 `json:"errorSeconds"`
}

// Worker is a worker lease. The IDs of the lease have times from Start to End, in unix
// milliseconds.
type Worker struct {
	Worker      uint64  `json:"worker"`
	Datacenter  uint64  `json:"datacenter"`
	Start       int64   `json:"start,string"`
	End         int64   `json:"end,string"`
	LeftSeconds float64 `json:"leftSeconds"`
}

// Election is one change of leader.
type Election struct {
	At     time.Time `json:"at"`
	Term   uint64    `json:"term"`
	Leader uint64    `json:"leader"`
	// GapSeconds is how long no leader was known before this one.
	GapSeconds float64 `json:"gapSeconds"`
}

// Move says that somebody has moved time ahead of the clock, for all clients.
type Move struct {
	At time.Time `json:"at"`
	// Operator: by isotone floor raise; else a client has, by the floor of a request.
	Operator bool `json:"operator"`
	// User is a name in parentheses if none is known, and Client the address. In the state document, which others than operators
	// may read, both are empty.
	User   string `json:"user,omitempty"`
	Client string `json:"client,omitempty"`
	// To is the time that was reached, and AheadSeconds how far it was ahead of the node's clock.
	To           time.Time `json:"to"`
	AheadSeconds float64   `json:"aheadSeconds"`
}

// History has the figures of the last intervals, oldest first, for charts.
type History struct {
	IntervalSeconds     float64 `json:"intervalSeconds"`
	TimestampsPerSecond Series  `json:"timestampsPerSecond"`
	IDsPerSecond        Series  `json:"idsPerSecond"`
	P50                 Series  `json:"p50"`
	P99                 Series  `json:"p99"`
	LeadSeconds         Series  `json:"leadSeconds"`
}

// Series is a list of figures. NaN stands for an unknown one; in JSON that is null.
type Series []float64

// MarshalJSON writes an array of numbers and nulls.
func (s Series) MarshalJSON() ([]byte, error) {
	out := make([]byte, 1, 2+8*len(s))
	out[0] = '['
	for i, f := range s {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, f, 'g', 6, 64) // enough digits for a chart
		}
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Series) UnmarshalJSON(text []byte) error {
	var figures []*float64
	if err := json.Unmarshal(text, &figures); err != nil {
		return err
	}
	*s = make(Series, len(figures))
	for i, f := range figures {
		(*s)[i] = math.NaN()
		if f != nil {
			(*s)[i] = *f
		}
	}
	return nil
}

// ReadState decodes a state document. Fields may be missing, and those of a later version
// are ignored.
func ReadState(r io.Reader) (*State, error) {
	text, err := io.ReadAll(io.LimitReader(r, StateBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > StateBytesMax {
		return nil, fmt.Errorf("the state document has more than %d bytes", StateBytesMax)
	}
	s := new(State)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("not a state document: %w", err)
	}
	return s, nil
}
