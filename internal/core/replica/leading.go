package replica

import "github.com/isotone/isotone/internal/core/oracle"

// leading is the volatile state of a leader in one term. Any change of term or role drops
// all of it (I2).
type leading struct {
	*facts
	clocks   *clocks
	tail     *tail
	digests  *digests
	queue    *queue
	interval *intervals

	alloc     oracle.Allocator // closed until this leader's own reservation is applied (I2)
	headroom  headroom         // see headroom.go
	wants64   bool             // a request for 64-bit timestamps waits for a reservation
	reserving bool             // a reservation is proposed and not applied
	// reservingSince is the tick at which it was proposed.
	reservingSince uint64
	missed         int // reservations in a row that were late
	// changeSeen is the latest membership change that was applied when the reservation in flight was
	// proposed; changeKnown is that of the latest reservation that was applied. See removalIsKnown.
	changeSeen, changeKnown uint64
	tenure                  int          // ticks since the leader was elected
	sinceEpoch              int          // ticks since the epoch began
	lease                   lease        // see lease.go
	raising                 uint64       // the floor of a client that is proposed and not applied; 0: none
	floors                  int          // floors that are proposed and not applied
	over                    bool         // the ceiling cannot rise any more
	changing                bool         // a membership change is proposed and not applied
	clients                 clientLeases // see client_lease.go
	timelines               timelines    // see timeline.go
	sessions                sessions     // see session.go
	clock                   clusterClock // see interval_clock.go
}

// newLeading returns the state at the beginning of a term, in any role.
func newLeading(r *Replica) leading {
	f := &r.facts
	return leading{
		facts: f, clocks: &r.clocks, tail: &r.tail, digests: &r.digests, queue: &r.queue, interval: &r.interval,
		lease: lease{facts: f}, clients: newClientLeases(f, &r.tail), timelines: newTimelines(r), sessions: newSessions(r), clock: clusterClock{facts: f},
	}
}
