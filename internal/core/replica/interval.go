package replica

import (
	"github.com/isotone/isotone/internal/core/interval"
)

// ClockAsk asks a peer for a reading of the cluster clock.
type ClockAsk struct {
	// Peer is the ID of the member that asks, or that is asked.
	Peer uint64
	// Nonce is that of the answer.
	Nonce uint64
}

// ClockAnswer answers a [ClockAsk] of Peer, or comes from there.
type ClockAnswer struct {
	Peer    uint64
	Nonce   uint64
	Reading interval.Reading
}

// IntervalStatus describes what this node knows of the cluster clock.
type IntervalStatus struct {
	// On is set if Config.Interval is not 0.
	On bool
	// Running is set while the log says that readings may be told.
	Running bool
	// Width is that of the interval in nanoseconds, Limit the time from its later bound to its limit, Age
	// the time since the latest reading, of a node that does not lead. They count while Known is set.
	Known             bool
	Width, Limit, Age int64
	// Broken is set while this node's steady clock, or the leader's, has a wrong rate.
	Broken bool
}

// ClockEstimate returns what this node knows of the cluster clock. It belongs to the replica and is
// valid until the next call of Step: copy it. A copy may be used by any goroutine for as long as its
// bounds are good, whatever becomes of this node.
func (r *Replica) ClockEstimate() *interval.Estimate { return &r.interval.estimate }

// intervals is this node's part in the cluster clock.
type intervals struct {
	estimate interval.Estimate
}
