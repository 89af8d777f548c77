package client

import (
	"sync"

	"github.com/isotone/isotone"
)

// A floor is the largest timestamp that the client has got so far. What is asked for after
// that must be larger, in every read mode (I4): whatever a cluster loses or restores, a
// client's own floor is never undercut (I13).
//
// There are several requests under way, and none of them has to be larger than what came
// back after it was sent. So each remembers the floor that it was sent at.
type floor struct {
	mu   sync.Mutex
	last isotone.Timestamp
}

// now returns the floor of a request that is about to be sent.
func (f *floor) now() isotone.Timestamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// raise takes what came back for a request that was sent at a floor. It reports false if
// that is not all above it; then nobody may have it.
func (f *floor) raise(sent isotone.Timestamp, got isotone.Range) bool {
	if got.First.Compare(sent) <= 0 {
		return false
	}
	last := got.Last()
	f.mu.Lock()
	defer f.mu.Unlock()
	if last.Compare(f.last) > 0 {
		f.last = last
	}
	return true
}

// inOrder checks what a node has given for a request, and returns why nobody may have it.
func (c *Client) inOrder(addr string, b *batch) error {
	if b.kind == kindID || c.floor.raise(b.floor, isotone.Range{First: b.first, Count: b.count()}) {
		return nil
	}
	return c.reject(addr, isotone.Errorf(isotone.CodeInternal,
		"%s gave the timestamp %v for a request that was sent after %v had been given: the order is broken (I4, I13)", addr, b.first, b.floor))
}
