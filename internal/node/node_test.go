package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// liveness bounds every wait for something that must happen; far beyond what it
// takes, so that a busy machine fails nothing.
const liveness = time.Minute

// cluster is a few nodes of this process, on loopback.
type cluster struct {
	t     testing.TB
	cfgs  map[uint64]node.Config
	nodes map[uint64]*node.Node
}

func newCluster(t testing.TB, size int, mutate func(*node.Config)) *cluster {
	c := &cluster{t: t, cfgs: map[uint64]node.Config{}, nodes: map[uint64]*node.Node{}}
	peers := map[uint64]string{}
	listeners := map[uint64]net.Listener{}
	for id := uint64(1); id <= uint64(size); id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[id], peers[id] = l, l.Addr().String()
	}
	for id, l := range listeners {
		cfg := node.Config{
			NodeID: id, Peers: peers, PeerListener: l, ClientAddr: fmt.Sprintf("client%d:1", id),
			DataDir: filepath.Join(t.TempDir(), "data"), EpochInterval: 100 * time.Millisecond,
			ReservationsMissedMax: 100, RequestsMax: 1000, Tick: 10 * time.Millisecond,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: telemetry.NewMetrics("test"),
		}
		if mutate != nil {
			mutate(&cfg)
		}
		c.cfgs[id] = cfg
		c.start(id)
	}
	t.Cleanup(func() {
		for id := range c.nodes {
			if err := c.stop(id); err != nil {
				t.Errorf("node %d: %v", id, err)
			}
		}
	})
	return c
}

func (c *cluster) start(id uint64) {
	c.t.Helper()
	cfg := c.cfgs[id]
	if cfg.PeerListener == nil {
		l, err := net.Listen("tcp", cfg.Peers[id])
		if err != nil {
			c.t.Fatal(err)
		}
		cfg.PeerListener = l
	}
	n, err := node.Start(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = n
	cfg.PeerListener = nil
	c.cfgs[id] = cfg
}

func (c *cluster) stop(id uint64) error {
	n := c.nodes[id]
	delete(c.nodes, id)
	return n.Close()
}

// leader waits for a node that leads and that all running nodes follow.
func (c *cluster) leader() uint64 {
	c.t.Helper()
	for deadline := time.Now().Add(liveness); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		leaders := map[uint64]int{}
		for _, n := range c.nodes {
			if s := n.Status(); s.NotReady == "" && s.Leader != 0 {
				leaders[s.Leader]++
			}
		}
		for id, followers := range leaders {
			if followers == len(c.nodes) && c.nodes[id] != nil {
				return id
			}
		}
	}
	for id, n := range c.nodes {
		c.t.Logf("node %d: %+v", id, *n.Status())
	}
	c.t.Fatal("no leader that all nodes follow")
	return 0
}

func get(n *node.Node, count uint64) (isotone.Range, error) {
	done := make(chan *front.Batch, 1)
	n.Submit(&front.Batch{Counts: []uint64{count}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b }})
	select {
	case b := <-done:
		if b.Err != nil {
			return isotone.Range{}, b.Err
		}
		return b.Ranges[0], nil
	case <-time.After(liveness):
		return isotone.Range{}, isotone.ErrDeadlineExceeded
	}
}

func TestNode_ServesAloneAtOnce(t *testing.T) {
	c := newCluster(t, 1, nil)
	r, err := get(c.nodes[c.leader()], 3)
	if err != nil || r.Count != 3 {
		t.Fatalf("%v, %v", r, err)
	}
	if age := time.Since(time.Unix(0, int64(r.First.Time))); age > liveness || age < -time.Minute {
		t.Errorf("time is %v off the clock", age)
	}
}

func TestNode_ThreeKeepRealTimeOrderOverTransfers(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	const workers = 8
	check := lincheck.NewOnline(workers)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var answers atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := c.nodes[uint64(w%3)+1]
				if leader := c.nodes[n.Status().Leader]; leader != nil {
					n = leader
				}
				op := check.Begin()
				r, err := get(n, 1+uint64(w))
				if err != nil {
					if !errors.Is(err, isotone.ErrNotLeader) && !errors.Is(err, isotone.ErrNoLeader) {
						t.Error(err)
					}
					continue
				}
				answers.Add(1)
				if err := check.End(op, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		leader := c.leader()
		before := answers.Load()
		transfer, done := context.WithTimeout(ctx, liveness)
		if err := c.nodes[leader].TransferLeadership(transfer); err != nil {
			t.Error(err)
		}
		done()
		if got := c.nodes[leader].Status().Leader; got == leader {
			t.Errorf("node %d transferred leadership and still leads", leader)
		}
		for answers.Load() < before+100 && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	wg.Wait()
}

func TestNode_FollowerNamesTheLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	_, err := get(c.nodes[leader%3+1], 1)
	var e *isotone.Error
	if !errors.As(err, &e) || !errors.Is(err, isotone.ErrNotLeader) || e.Leader != fmt.Sprintf("client%d:1", leader) {
		t.Errorf("got %v, want not_leader with the leader's address", err)
	}
}

func TestNode_AFailedDiskStopsItAndTheOthersGoOn(t *testing.T) {
	var broken atomic.Uint64 // the node whose disk is broken
	c := newCluster(t, 3, func(cfg *node.Config) {
		id := cfg.NodeID
		cfg.StorageFault = func() error {
			if broken.Load() == id {
				return errors.New("input/output error")
			}
			return nil
		}
	})
	leader := c.leader()
	broken.Store(leader)
	bad := c.nodes[leader]
	select {
	case <-bad.Failed():
	case <-time.After(liveness):
		t.Fatal("the node with the broken disk goes on")
	}
	if err := bad.Err(); err == nil {
		t.Error("no reason was given")
	}
	if _, err := get(bad, 1); err == nil {
		t.Error("I8: a node with a failed disk answered")
	}
	delete(c.nodes, leader)
	_ = bad.Close()
	if _, err := get(c.nodes[c.leader()], 1); err != nil {
		t.Error(err)
	}
}

func TestNode_ASlowDiskDelaysNoAnswer(t *testing.T) {
	var slow atomic.Bool
	release := make(chan struct{})
	c := newCluster(t, 3, func(cfg *node.Config) {
		cfg.StorageFault = func() error {
			if slow.Load() {
				<-release
			}
			return nil
		}
	})
	leader := c.nodes[c.leader()]
	slow.Store(true) // no write completes anywhere from here on
	for range 100 {
		if _, err := get(leader, 1); err != nil {
			t.Fatal(err)
		}
	}
	slow.Store(false)
	close(release)
}

func TestNode_AWipedMemberIsRefusedAndStops(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	victim := leader%3 + 1
	if err := c.stop(victim); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.cfgs[victim].DataDir); err != nil {
		t.Fatal(err)
	}
	c.start(victim)
	wiped := c.nodes[victim]
	select {
	case <-wiped.Failed():
		t.Log(wiped.Err())
	case <-time.After(liveness):
		t.Fatal("I6: a wiped member takes part")
	}
	delete(c.nodes, victim)
	_ = wiped.Close()
	if _, err := get(c.nodes[c.leader()], 1); err != nil {
		t.Error(err)
	}
}

func TestNode_RefusesPeersThatItsDirectoryDoesNotKnow(t *testing.T) {
	alone := newCluster(t, 1, nil)
	alone.leader()
	if err := alone.stop(1); err != nil {
		t.Fatal(err)
	}
	cfg := alone.cfgs[1]
	cfg.Peers = map[uint64]string{1: cfg.Peers[1], 2: "127.0.0.1:2", 3: "127.0.0.1:3"}
	var err error
	if cfg.PeerListener, err = net.Listen("tcp", cfg.Peers[1]); err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(cfg)
	if err == nil {
		_ = n.Close()
		t.Fatal("a node that forms a cluster of its own started with the PEERS of three")
	}
	for _, want := range []string{"PEERS", "node 2", cfg.DataDir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestNode_SaysWhyItRefusesItsPeers(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) {
		if cfg.NodeID == 3 { // the addresses of the other two are mixed up
			cfg.Peers = map[uint64]string{1: cfg.Peers[2], 2: cfg.Peers[1], 3: cfg.Peers[3]}
		}
	})
	for deadline := time.Now().Add(liveness); ; time.Sleep(5 * time.Millisecond) {
		why := c.nodes[3].Status().NotReady
		if strings.Contains(why, "PEERS") && strings.Contains(why, "wrong_node") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready because: %q", why)
		}
	}
}

func TestNode_RefusesMoreThanItsQueueHolds(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[c.leader()]
	counts := make([]uint64, 1001)
	done := make(chan error, 1)
	n.Submit(&front.Batch{Counts: counts, Ranges: make([]isotone.Range, len(counts)), Done: func(b *front.Batch) { done <- b.Err }})
	if err := <-done; !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("1001 requests at once with a limit of 1000: %v", err)
	}
}

func TestNode_CloseAnswersWhatWaits(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	n := c.nodes[leader]
	for id := range c.nodes {
		if id != leader {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := make(chan error, 1)
	n.Submit(&front.Batch{Counts: []uint64{1}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b.Err }})
	if err := c.stop(leader); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("a request without a quorum: %v, want no_leader", err)
	}
	n.Submit(&front.Batch{Counts: []uint64{1}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b.Err }})
	if err := <-done; !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("a request to a closed node: %v, want no_leader", err)
	}
}

func BenchmarkNode_Timestamps(b *testing.B) {
	for _, size := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			c := newCluster(b, size, nil)
			n := c.nodes[c.leader()]
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := get(n, 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// The members on record are looked at before anything is sent to them.
func TestStart_FailsForAddressesThatCheckPeersRefuses(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
		known := 0
		for _, m := range c.nodes[2].Status().Members {
			if m.PeerAddr != "" {
				known++
			}
		}
		if known == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the addresses do not come")
		}
	}
	if err := c.stop(2); err != nil {
		t.Fatal(err)
	}
	cfg := c.cfgs[2]
	var seen map[uint64]string
	cfg.CheckPeers = func(addrs map[uint64]string) error {
		if seen = addrs; len(addrs) < 2 {
			return nil
		}
		return errors.New("not these")
	}
	// The disk may not know yet that they are committed; the next start does.
	for deadline := time.Now().Add(liveness); ; {
		l, err := net.Listen("tcp", cfg.Peers[2])
		if err != nil {
			t.Fatal(err)
		}
		cfg.PeerListener = l
		n, err := node.Start(cfg)
		if err != nil {
			if !strings.Contains(err.Error(), "not these") {
				t.Error(err)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("started, although the addresses are on record")
		}
	}
	if len(seen) != 2 || seen[1] != cfg.Peers[1] || seen[3] != cfg.Peers[3] {
		t.Errorf("%v, want those of nodes 1 and 3 in %v", seen, cfg.Peers)
	}
}
