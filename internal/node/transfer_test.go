package node_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/node"
)

// gate lets the writes of a node pass, but for one while it is shut.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil: open
	waiting chan struct{} // closed once a write waits
}

// pass is a node.Config.StorageFault.
func (g *gate) pass() error {
	g.mu.Lock()
	shut := g.shut
	if shut != nil && g.waiting != nil {
		close(g.waiting)
		g.waiting = nil
	}
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return nil
}

// close shuts the gate, and returns when a write waits in front of it, with a function that opens
// the gate.
func (g *gate) close(t *testing.T) (open func()) {
	t.Helper()
	shut, waiting := make(chan struct{}), make(chan struct{})
	g.mu.Lock()
	g.shut, g.waiting = shut, waiting
	g.mu.Unlock()
	open = sync.OnceFunc(func() {
		g.mu.Lock()
		g.shut, g.waiting = nil, nil
		g.mu.Unlock()
		close(shut)
	})
	t.Cleanup(open)
	select {
	case <-waiting:
	case <-time.After(liveness):
		t.Fatal("nothing is written")
	}
	return open
}

// TestTransfer_IsRepeatedUntilItSucceeds: the only other voter lacks the end of the log, as its
// disk hangs. Raft gives a transfer up after an election timeout, and nobody but the one who asks
// repeats it.
func TestTransfer_IsRepeatedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	for name, transfer := range map[string]func(ctx context.Context, n *node.Node, to uint64) error{
		"of a node that drains": func(ctx context.Context, n *node.Node, _ uint64) error { return n.TransferLeadership(ctx) },
		"by an operator":        func(ctx context.Context, n *node.Node, to uint64) error { return n.Transfer(ctx, to) },
	} {
		t.Run(name, func(t *testing.T) {
			gates := map[uint64]*gate{1: {}, 2: {}, 3: {}}
			c := newCluster(t, 3, func(cfg *node.Config) {
				cfg.StorageFault = gates[cfg.NodeID].pass
				cfg.ReservationsMissedMax = 1_000_000 // it gives its leadership up for nothing else
			})
			leader := c.leader()
			to, third := leader%3+1, (leader+1)%3+1
			if err := c.stop(third); err != nil {
				t.Fatal(err)
			}
			open := gates[to].close(t)
			ctx, cancel := context.WithTimeout(t.Context(), liveness)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- transfer(ctx, c.nodes[leader], to) }()
			// Should this be too short for Raft to give it up, the test notices less, but does not fail.
			time.Sleep(60 * c.cfgs[leader].Tick)
			select {
			case err := <-done:
				t.Fatalf("it ended before the other voter could lead: %v", err)
			default:
			}
			open()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := c.leader(); got != to {
				t.Errorf("node %d leads, want %d", got, to)
			}
		})
	}
}
