package oracle

import (
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/timeline"
)

// membersFence is how far beyond the floor of a restored cluster, in milliseconds, nodes of
// the former one may have made ids: they use their leases only up to 10 s beyond the clocks of a quorum
// (SkewMax of internal/core/replica). The rest is a margin for the rates of clocks.
const membersFence = uint64(11 * time.Second / time.Millisecond)

// Fence keeps the workers of a restored cluster from what holders of the former one may still
// use (I9). No lease begins before it. The zero value keeps nothing.
type Fence struct {
	// Members is for the workers in the members' share, Clients for all others, in unix
	// milliseconds.
	Members, Clients uint64
}

// Restored returns the first state of a cluster that is restored from a backup of another one,
// without ClusterID, Level and members. The other cluster must be gone for good. Floor is a
// time above the ceilings that it ever had, in unix nanoseconds, at most CeilingMax.
//
// Limits of its cluster clock may still run, so the first leader waits for them as for those of an
// earlier term (I14). If there was no cluster clock yet at the time of the backup, that is up to the
// operator.
//
// The leases that the former cluster granted after the backup are unknown. Any of them began
// at most aheadMax after its ceiling and is at most LeaseMax long, so it ends before
// floor + aheadMax + LeaseMax; until then a client may make ids by it. Only nodes hold workers
// of the members' share, and those that have made ids until the end have done so by their
// clocks.
func Restored(from State, floor uint64) State {
	s := State{Ceiling: max(floor, from.Ceiling), Space: from.Space, Interval: from.Interval}
	if mutant.On(mutant.RestoreBelow) {
		s.Ceiling = 0
	}
	if from.Level >= timeline.Level { // one may have been created after the backup
		s.Timelines = from.Timelines.Restored(max(floor, from.Ceiling))
	}
	for _, l := range from.Workers {
		// Without a holder, and with its Start and End (see worker.go).
		s.Workers = append(s.Workers, WorkerLease{Worker: l.Worker, Start: l.Start, End: l.End})
	}
	ms := max(floor, from.Ceiling)/uint64(time.Millisecond) + 1
	clients := max(from.Fence.Clients, ms+aheadMax+LeaseMax)
	s.Fence = Fence{Members: max(from.Fence.Members, ms+membersFence), Clients: clients}
	if mutant.On(mutant.FreeRestored) {
		s.Fence.Clients = 0
	}
	return s
}

// fenceOf returns the unix millisecond before which no lease of a worker begins.
func (s *State) fenceOf(space Space, worker uint16) uint64 {
	if int(worker) < space.MembersShare() {
		return s.Fence.Members
	}
	return s.Fence.Clients
}
