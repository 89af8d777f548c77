// Package node runs one member of the cluster.
//
// The core is the replica with its disk and its peers (core.go). It runs in loop 0, which
// owns client connections like the other I/O loops. A turn takes everything that has arrived,
// steps the replica once, and carries out the effects. Writes go to a goroutine of their own,
// so that a slow fsync delays no answer. The fronts in the other loops reach the core through
// a [bundler], those on the standard servers through [Node.Submit].
//
// Nothing else in the module reads a clock on behalf of the replica, and only the core loop's
// goroutine touches it. The fronts see a node as a front.Backend and know nothing of what is
// behind it; the node knows nothing of protocols.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/storage"
)

// Node is one running member. It implements front.Backend. All methods are safe for
// concurrent use.
type Node struct {
	cfg   Config     // constant
	hosts loop.Hosts // constant; the first one runs the core
	core  *core      // belongs to the core loop's goroutine, but for its queue
	// backends are the node as the fronts in each loop see it; each belongs to its loop's
	// goroutine.
	backends []front.Backend
	ids      *ids // for any goroutine
	clock    clusterClock
	status   atomic.Pointer[front.Status]
	draining atomic.Bool
	// sessionConns counts the connections of sessions.
	sessionConns atomic.Uint64
	operates     atomic.Pointer[func(context.Context, front.Carried) (int, []byte)] // see OperateBy
	began        time.Duration                                                      // constant; as core.mono

	failOnce sync.Once
	failed   chan struct{} // closed when err is set
	err      error
}

// Start opens the data directory and runs the node. The caller must Close it.
//
// Its error says what to do about a data directory that is damaged, in use, or another
// node's.
func Start(cfg Config) (*Node, error) {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	if cfg.Mode == isotone.ReadDefault {
		cfg.Mode = isotone.ReadQuorum
	}
	failed := func(err error, closers ...func() error) (*Node, error) {
		err = fmt.Errorf("node %d: %w", oracle.NodeOf(cfg.NodeID), err)
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return nil, errors.Join(err, cfg.PeerListener.Close())
	}
	store, rec, seed, err := openStore(cfg)
	if err != nil {
		return failed(err)
	}
	if rec.Snapshot == nil && len(rec.Entries) == 0 && rec.Identity.ClusterID != 0 && cfg.Join == nil {
		err := fmt.Errorf("the data directory %s was made to join cluster %v, which has not let it in yet: start with JOIN again", cfg.DataDir, isotone.ClusterID(rec.Identity.ClusterID))
		return failed(err, store.Close)
	}
	if name := storage.NetworkFileSystem(cfg.DataDir); name != "" {
		cfg.Log.Warn("DATA_DIR is on a network file system, which may forget the lock of the directory or not share it with other machines; use a local disk", "dir", cfg.DataDir, "file_system", name)
	}
	if rec.Fresh {
		reached(cfg.Steps, "directory made")
	}
	rcfg := replicaConfig(cfg, rec)
	if rcfg.Seed, err = replicaSeed(seed); err != nil {
		return failed(err, store.Close)
	}
	r, err := replica.New(rcfg)
	if err == nil && !rec.Fresh {
		err = checkPeers(cfg, r.Members(), r.Removed())
	}
	if err == nil {
		err = checkRecorded(cfg, rec)
	}
	if err != nil {
		return failed(err, store.Close)
	}
	loops, err := newLoops(cfg)
	if err != nil {
		return failed(err, store.Close)
	}
	n := &Node{cfg: cfg, ids: newIDs(cfg.IDs, cfg.Clock, cfg.Loops), failed: make(chan struct{}), began: cfg.Clock.Mono()}
	n.clock.on, n.clock.clock = cfg.Interval > 0, cfg.Clock
	n.build(loops, r, store)
	if seed != nil {
		n.core.disk.seedDir = cfg.DataDir
		cfg.Log.Info("this node restores a cluster from a backup", "node", oracle.NodeOf(cfg.NodeID), "backup", seed.Backup.Sum[:16],
			"of_cluster", seed.Backup.ClusterID, "floor", seed.Floor,
			"ahead", time.Unix(0, int64(seed.Floor)).Sub(cfg.Clock.Wall()).String())
	}
	cfg.Log.Info("node started", "node", oracle.NodeOf(cfg.NodeID), "dir", cfg.DataDir, "fresh", rec.Fresh, "start", rec.Identity.Boot,
		"cluster", fmt.Sprintf("%016x", rec.Identity.ClusterID), "incarnation", fmt.Sprintf("%016x", rec.Identity.Incarnation))
	n.core.startPeers()
	n.core.publish()
	go n.core.disk.run()
	for _, h := range n.hosts {
		h.Start()
	}
	return n, nil
}

// newLoops opens the loops of a node.
func newLoops(cfg Config) ([]*loop.Loop, error) {
	var loops []*loop.Loop
	for len(loops) < max(1, cfg.Loops) {
		l, err := loop.New(cfg.Log)
		if err != nil {
			for _, l := range loops {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		if cfg.KeepProcessors {
			l.KeepProcessor()
		}
		loops = append(loops, l)
	}
	return loops, nil
}

// build makes the core, which the first loop runs, and a bundler for each other loop.
func (n *Node) build(loops []*loop.Loop, r *replica.Replica, store *storage.Store) {
	forwarder := func(l *loop.Loop) Forwarder {
		if n.cfg.Forward == nil {
			return nil
		}
		return n.cfg.Forward(l.Wake)
	}
	c := &core{
		node: n, loop: loops[0], replica: r, disk: newDisk(store), queue: newSubmitQueue(loops[0].Wake),
		lessor: lessor{open: map[uint64]*front.WorkerRequest{}}, timelines: timelineRequests{open: map[uint64]chan<- replica.TimelineAnswer{}},
		sessions: sessions{tells: map[session.Conn]func(session.Message){}, accounts: map[session.Conn]*access.Account{}}, forwarder: forwarder(loops[0]), wall: n.cfg.Clock.Wall(),
	}
	c.openKeeper()
	c.disk.saved = func(w *replica.Write) { n.post(func() { c.next.Persisted = w }) }
	c.disk.failed = n.fail
	c.disk.observe = func(took time.Duration, size int64) {
		n.cfg.Metrics.ObserveStorageWrite(took)
		n.cfg.Metrics.SetDatabaseSize(size)
	}
	n.cfg.Metrics.SetDatabaseSize(store.Size())
	n.core = c
	c.steps, c.disk.steps = n.cfg.Steps, n.cfg.Steps
	n.hosts = loop.Hosts{loop.NewHost(c.loop, loop.HostConfig{Work: c, Failed: n.fail})}
	n.backends = []front.Backend{coreBackend{c}}
	for _, l := range loops[1:] {
		b := newBundler(n, l)
		b.forwarder = forwarder(l)
		// What it has submitted is answered by the core until that ends.
		b.host = loop.NewHost(l, loop.HostConfig{Work: b, After: n.hosts[0].Done(), Failed: n.fail})
		n.hosts, n.backends = append(n.hosts, b.host), append(n.backends, b)
	}
}

// Submit takes a batch of requests; see front.Backend.
func (n *Node) Submit(b *front.Batch) {
	if err := n.core.queue.submit(b); err != nil {
		b.Err = err
		b.Done(b)
	}
}

// Status returns what the node knows; see front.Backend.
func (n *Node) Status() *front.Status { return n.status.Load() }

// Serve accepts client connections from ln, which the node owns from now on, in its loops.
// open is called once for each loop, on its goroutine, with the loop's number and the backend
// for the fronts in it: Submit and Done belong to that goroutine. It can be called once.
func (n *Node) Serve(ln net.Listener, limits loop.Limits, open func(i int, b front.Backend, l *loop.Loop) loop.Service) error {
	err := n.hosts.Serve(ln, limits, func(i int, l *loop.Loop) loop.Service { return open(i, n.backends[i], l) })
	if errors.Is(err, loop.ErrClosed) {
		return errStopped
	}
	return err
}

// Conns returns how many client connections the fronts in the loops have.
func (n *Node) Conns() int { return n.hosts.Conns() }

// StopServing accepts no more client connections, tells the fronts, and waits until they
// have no connections left, or for ctx.
func (n *Node) StopServing(ctx context.Context) { n.hosts.StopServing(ctx) }

// Drain announces that the node is about to end: from when it returns on, the status says that
// it drains and is not ready, and the leader gives its groups of timelines to others. The node goes on serving.
func (n *Node) Drain() {
	n.draining.Store(true)
	n.call(func() {
		n.core.next.StopOwning = true
		n.core.publish()
	})
}

// What clients are told when a node ends. The reason of a failure is for the log.
var (
	errFailed  = isotone.Errorf(isotone.CodeNoLeader, "this node has failed and stops")
	errStopped = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")
)

// Failed is closed when the node cannot go on: its disk failed, or its data directory is not
// the one that the cluster knows. [Node.Err] says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err returns why the node failed, or nil.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.err
	default:
		return nil
	}
}

// fail ends the node because of err. Requests get no answer any more, and nothing is
// written; Close still has to be called.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.err = err
		close(n.failed)
	})
	n.hosts.Stop()
}

// Close stops the node and joins its goroutines. Requests that wait are answered with
// isotone.ErrNoLeader. Writes that were given out become durable first, unless the disk has
// failed.
func (n *Node) Close() error {
	n.hosts.Stop()
	var err error
	for _, h := range n.hosts {
		if hostErr := h.Err(); hostErr != nil {
			n.cfg.Log.Warn("a loop did not end well", "err", hostErr)
		}
	}
	err = n.core.peers.transport.Close()
	return errors.Join(err, n.core.disk.close())
}

// post has f run on the core loop's goroutine and reports whether it will be. What is posted
// is bounded: a few functions for each handshake, connection of a peer, write, command of an operator,
// request for a worker lease, and request or watch of a session, of which a connection has one.
func (n *Node) post(f func()) bool { return n.hosts[0].Post(f) }

// call runs f on the core loop's goroutine and waits for it. It reports whether f has run.
func (n *Node) call(f func()) bool { return n.hosts[0].Call(f) }
