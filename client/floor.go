package client

import (
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

// floor is a search.Floor for many goroutines.
type floor struct {
	mu sync.Mutex
	search.Floor
}

// now returns the floor for a request that is about to be sent.
func (f *floor) now() isotone.Timestamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Last
}

// raise is Raise for an answer.
func (f *floor) raise(sent, first, last isotone.Timestamp) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Raise(sent, first, last)
}

const (
	// aheadMin is how far ahead a floor must be for its call to have a connection of its own. The leader
	// answers other calls about as fast as those without a floor.
	aheadMin = 100 * time.Millisecond
	// heldMax is how long a leader may hold a request whose floor is ahead of the cluster clock
	// (replica.ClientFloorAheadMax).
	heldMax = 10 * time.Second
)

// isAhead reports whether a leader may hold a request with that floor until its clock has passed it: the
// floor is ahead of what was received last, and of the clock of this machine. A clock that is wrong costs
// time only.
func (c *Client) isAhead(floor isotone.Timestamp) bool {
	near := max(c.floor.now().Time, uint64(max(time.Now().UnixNano(), 0))) + uint64(aheadMin)
	return floor.Time > near
}

// undercut returns an error if the answer is not above the floor that the call named. Only a
// node of an older version, which does not know floors, answers so.
func (b *batch) undercut(addr string) *isotone.Error {
	if b.above == (isotone.Timestamp{}) || b.above.Before(b.first) {
		return nil
	}
	return isotone.Errorf(isotone.CodeRegressed, "%s issued timestamp %v, not above the floor %v", addr, b.first, b.above)
}

// inOrder checks the answer to a request. It returns an error if no call may use it.
func (c *Client) inOrder(addr string, b *batch) error {
	if b.kind == kindID || b.isOracle || b.order.floor.raise(b.floor, b.first, b.at(b.count()-1)) {
		return nil
	}
	return c.reject(addr, isotone.Errorf(isotone.CodeInternal,
		"%s issued timestamp %v%s for a request that was sent after %v had been received: the order is broken (I4, I13)", addr, b.first, b.order.text(), b.floor))
}
