package demo

import (
	"context"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/cluster"
)

// watchInterval is the time between two questions to a node who leads.
const watchInterval = 20 * time.Millisecond

// watchTimeout bounds one of them, so that a stopped node is asked again soon after it continues.
const watchTimeout = 250 * time.Millisecond

// leadership is what the nodes say about which of them leads. It is safe for concurrent use.
type leadership struct {
	// note is called with each change, and with 0 when the leader is lost.
	note func(node uint64)

	mu   sync.Mutex
	node uint64
	term uint64
	lost uint64 // a term whose leader was ended
}

// known returns the leader; 0: none is known.
func (l *leadership) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}

// led records that a node says that it leads in a term.
func (l *leadership) led(node, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term <= l.lost || term < l.term || term == l.term && node == l.node {
		return
	}
	l.node, l.term = node, term
	l.note(node)
}

// lose records that the leader is about to be ended: whoever leads next does so in a later term.
func (l *leadership) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.node, l.lost = 0, l.term
	l.note(0)
}

// watch asks all nodes until ctx is done.
func (l *leadership) watch(ctx context.Context, nodes []*cluster.Node) {
	var watchers sync.WaitGroup
	for _, n := range nodes {
		watchers.Go(func() {
			ticker := time.NewTicker(watchInterval)
			defer ticker.Stop()
			for {
				asking, cancel := context.WithTimeout(ctx, watchTimeout)
				if m, err := n.Members(asking); err == nil && m.Role == "leader" {
					l.led(m.NodeID, m.Term)
				}
				cancel()
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	watchers.Wait()
}
