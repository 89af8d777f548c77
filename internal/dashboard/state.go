package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// StateBytesMax bounds a state document that is read, far above one of a hundred members.
const StateBytesMax = 4 << 20

// State is the state document: one node's view of itself and of the cluster. The node
// encodes it once a second; [Handler] and the page read it from /state and
// /live/state/stream. 64-bit integers that can exceed 2^53 are strings in JSON, because
// JavaScript would round them.
type State struct {
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
	// ClusterID is an isotone.ClusterID in text; empty while the node does not know it.
	ClusterID string `json:"clusterID,omitempty"`
	Node      Node   `json:"node"`
	// Leader is nil while none is known.
	Leader *Leader `json:"leader"`
	Term   uint64  `json:"term"`
	// Epoch is the time that the leader issues now; nil on any other node.
	Epoch *Mark `json:"epoch"`
	// Ceiling is the bound of issued time; nil until one is known.
	Ceiling  *Mark    `json:"ceiling"`
	ReadMode string   `json:"readMode"`
	Rates    Rates    `json:"rates"`
	Latency  Latency  `json:"latency"`
	Totals   Totals   `json:"totals"`
	Members  []Member `json:"members"`
	Clock    Clock    `json:"clock"`
	// Workers are the leases of worker numbers that this node holds.
	Workers []Worker `json:"workers"`
	// Elections are the latest changes of leader that this node saw, oldest first.
	Elections []Election `json:"elections"`
	History   *History   `json:"history,omitempty"`
}

// Node is the node that a document is from.
type Node struct {
	ID            uint64  `json:"id"`
	Addr          string  `json:"addr"` // client address
	Role          string  `json:"role"` // leader, follower, candidate or learner
	Ready         bool    `json:"ready"`
	NotReady      string  `json:"notReady"` // why; empty when it is ready
	Forming       bool    `json:"forming"`  // the initial members have yet to form the cluster
	Draining      bool    `json:"draining"` // it is about to end, and therefore not ready
	UptimeSeconds float64 `json:"uptimeSeconds"`
	Loops         int     `json:"loops"`
}

// Leader is the node to send requests to.
type Leader struct {
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr"`
}

// Mark is a time of the oracle, and how far it is ahead of the node's own clock.
type Mark struct {
	Time        uint64  `json:"time,string"` // unix nanoseconds
	LeadSeconds float64 `json:"leadSeconds"` // negative: behind
}

// Rates are of the node itself, over the last interval.
type Rates struct {
	TimestampsPerSecond float64 `json:"timestampsPerSecond"`
	RequestsPerSecond   float64 `json:"requestsPerSecond"`
	IDsPerSecond        float64 `json:"idsPerSecond"`
	ErrorsPerSecond     float64 `json:"errorsPerSecond"`
}

// Latency is of the node's own requests of the last interval, in seconds; nil when
// there were none.
type Latency struct {
	P50  *float64 `json:"p50"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// Totals count since the node started.
type Totals struct {
	Timestamps uint64 `json:"timestamps,string"`
	Requests   uint64 `json:"requests,string"`
	IDs        uint64 `json:"ids,string"`
	Errors     uint64 `json:"errors,string"`
}

// Member is one member of the cluster as the node sees it.
type Member struct {
	NodeID    uint64 `json:"nodeID"`
	Addr      string `json:"addr"` // client address; empty until it is known
	PeerAddr  string `json:"peerAddr"`
	Learner   bool   `json:"learner"`
	Self      bool   `json:"self"`
	Connected bool   `json:"connected"`
	// LagEntries is how much of the log the member lacks. Only the leader knows.
	LagEntries *uint64 `json:"lagEntries"`
	// ClockOffsetSeconds is the member's clock minus the node's own; nil when unknown.
	ClockOffsetSeconds *float64 `json:"clockOffsetSeconds"`
	Leader             bool     `json:"leader"`
}

// Clock is the node's clock against those of the others.
type Clock struct {
	OffsetFromMedianSeconds float64 `json:"offsetFromMedianSeconds"`
	OK                      bool    `json:"ok"`
	// OffsetFromQuorumSeconds is the node's clock minus the clock that a quorum of the voters
	// vouches for; nil while too few clocks are known. If SoleVoter it is how far the clock has
	// jumped.
	OffsetFromQuorumSeconds *float64 `json:"offsetFromQuorumSeconds"`
	// Exceeded is set while that is beyond LimitSeconds, and the node therefore does not go by
	// its own clock.
	Exceeded bool `json:"exceeded"`
	// SoleVoter is set while the node is the only voter: nobody can vouch for its clock.
	SoleVoter bool `json:"alone"`
	// LimitSeconds is CLOCK_JUMP_MAX_MS; 0 believes any clock.
	LimitSeconds float64 `json:"limitSeconds"`
}

// Worker is a lease of a worker number for ids. Start and End are unix milliseconds:
// the ids of the lease lie between them.
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
	// GapSeconds is how long no leader was known before.
	GapSeconds float64 `json:"gapSeconds"`
}

// History holds the last intervals, oldest first, for charts.
type History struct {
	IntervalSeconds     float64 `json:"intervalSeconds"`
	TimestampsPerSecond Series  `json:"timestampsPerSecond"`
	IDsPerSecond        Series  `json:"idsPerSecond"`
	P50                 Series  `json:"p50"`
	P99                 Series  `json:"p99"`
	LeadSeconds         Series  `json:"leadSeconds"`
}

// Series is a list of figures in which NaN stands for none; in JSON that is null.
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
			out = strconv.AppendFloat(out, f, 'g', 6, 64) // a chart shows no more
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
		return nil, fmt.Errorf("a state document of more than %d bytes", StateBytesMax)
	}
	s := new(State)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("no state document: %w", err)
	}
	return s, nil
}
