package client

import (
	"sync"

	"github.com/isotone/isotone"
)

// A floor is the largest timestamp that the client has received. Timestamps requested later
// must be larger, in every read mode (I4): whatever a cluster loses or restores, no answer
// is below the client's own floor (I13).
//
// Several requests are under way at once, and an answer need not be larger than what arrived
// after its request was sent. So each request keeps the floor from when it was sent.
//
// The first request on each connection also tells the node the floor: see conn.line.
type floor struct {
	mu   sync.Mutex
	last isotone.Timestamp
}

// now returns the floor for a request that is about to be sent.
func (f *floor) now() isotone.Timestamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// raise raises the floor to last, the end of the answer to a request that was sent at the floor sent. It
// reports false if first, the beginning, is not above that floor; then no call may use the answer.
func (f *floor) raise(sent, first, last isotone.Timestamp) bool {
	if first.Compare(sent) <= 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last.Compare(f.last) > 0 {
		f.last = last
	}
	return true
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
	if b.kind == kindID || c.floor.raise(b.floor, b.first, b.at(b.count()-1)) {
		return nil
	}
	return c.reject(addr, isotone.Errorf(isotone.CodeInternal,
		"%s issued timestamp %v for a request that was sent after %v had been received: the order is broken (I4, I13)", addr, b.first, b.floor))
}
