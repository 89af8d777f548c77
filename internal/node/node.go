// Package node runs one member of the cluster: it owns the loop in which the
// replica takes its turns, and wires it to the disk, the peers, the clock and the
// fronts.
//
// Nothing else in the module reads a clock on behalf of the replica, and only the
// loop's goroutine touches it. What arrives, arrives in the mailbox; a turn takes
// all of it, steps the replica once, and carries out the effects. Writes go to a
// goroutine of their own, so that a slow fsync delays no answer.
//
// The fronts see a node as a front.Backend and know nothing of what is behind it;
// the node knows nothing of protocols.
package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// Config says what a node is and where its edges are. All fields are required
// unless their comment says otherwise.
type Config struct {
	NodeID uint64
	// Peers holds the peer addresses of the initial members, this node among them.
	// For members that joined later the replicated address counts.
	Peers map[uint64]string
	// PeerListener accepts the other members. The node owns it from Start on.
	PeerListener net.Listener
	// ClientAddr is the client address (host:port) that others are told.
	ClientAddr string
	DataDir    string
	// EpochInterval is how often the leader advances the epoch; 0 at every batch.
	EpochInterval time.Duration
	// ReservationsMissedMax is EPOCH_DEADLINE_LIMIT.
	ReservationsMissedMax int
	// RequestsMax is TIMESTAMP_REQUEST_BUFFER.
	RequestsMax int
	// ClockJumpMax is CLOCK_JUMP_MAX_MS; 0 believes any clock.
	ClockJumpMax time.Duration
	// Tick is RTT_MS.
	Tick time.Duration
	// Loops is how many loops own client connections, the home loop among them; 0
	// means 1.
	Loops int
	// KeepProcessors lets the loops keep their processors while they sleep; see
	// loop.Loop.KeepProcessor for what the program owes them.
	KeepProcessors bool
	// Mode is used for batches that do not choose theirs; ReadDefault means quorum.
	Mode isotone.ReadMode
	// IDs says which snowflake ids the node makes; the zero value is none.
	IDs IDConfig
	// Forward, if not nil, makes what has the leader answer when this node does not lead; it
	// is called once for each loop, and wake ends a sleep of that.
	Forward func(wake func()) Forwarder
	// Clock is the system's if nil.
	Clock   Clock
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// StorageFault is a seam for tests: storage.Options.BeforeCommit.
	StorageFault func() error
}

// requestWait is how long a request waits for a leader to be able to answer it.
const requestWait = 5 * time.Second

// reservationInterval paces reservations when EpochInterval is 0.
const reservationInterval = 100 * time.Millisecond

// snapshotEvery is how many log entries lie between snapshots: at ten reservations a
// second, a few minutes and some 100 kB of log.
const snapshotEvery = 4096

// Node is one running member. It implements front.Backend.
type Node struct {
	cfg       Config
	replica   *replica.Replica
	disk      *disk
	transport *peer.Transport
	mail      *mailbox
	door      *door
	ids       *ids
	desk      desk      // the home loop's
	forwarder Forwarder // the home loop's; nil: none
	branches  []*branch
	status    atomic.Pointer[front.Status]

	stop     chan struct{} // closed to end the loop
	stopOnce sync.Once
	homeDone chan struct{} // closed when the home loop has ended
	failed   chan struct{} // closed when err is set
	failOnce sync.Once
	err      error

	// What follows belongs to the loop's goroutine.
	loop    *loop.Loop
	lane    Lane
	links   map[uint64]*peerConn // peers whose connections are in the loop
	arrived []*raftpb.Message    // read from them since the last turn
	hellos  []replica.Hello      // the same, of peers that were admitted before
	changed bool                 // something of the status has changed outside of a turn
	calls   callTable
	// submitted are the batches of the fronts in the loop since the last turn.
	submitted     []*front.Batch
	transfer      bool                // the next turn asks for a transfer of leadership
	leaders       []chan struct{}     // closed once another node leads
	clocks        []replica.PeerClock // heard since the last turn
	stopIDs       bool                // ids are made no more
	returned      []chan struct{}     // closed once all worker ids were given back
	clockExceeded bool                // the log says that this node's clock is not believed
	idsMade       uint64              // as reported
	peers         map[uint64]string
	reported      replica.Counters
	refusals      map[uint64]*peer.Refusal // how each peer last refused this node, for messages
	refusing      map[uint64]*peer.Refusal // how this node last refused each peer
	raising       []chan *isotone.Error    // who asked for a higher feature level, before the next turn
	level         uint64                   // the feature level as last logged
	announcedTerm uint64                   // the term in which the log said that an upgrade waits to be finalized
	elections     elections
	began         time.Duration // as mono
	wall          time.Time     // as of the latest turn
	mono          time.Duration // the same
	forming       string        // what the log says that the cluster's formation waits for
	ahead         bool          // time leads the clock by more than leadMax, and the log says so
}

// Start opens the data directory and runs the node. The caller must Close it.
//
// Its error says what to do about a data directory that is damaged, in use, or
// another node's.
func Start(cfg Config) (*Node, error) {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	if cfg.Mode == isotone.ReadDefault {
		cfg.Mode = isotone.ReadQuorum
	}
	store, rec, err := storage.Open(storage.Options{
		Dir: cfg.DataDir, NodeID: cfg.NodeID, Incarnation: random(),
		BeforeCommit: cfg.StorageFault,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %d: %w", cfg.NodeID, err), cfg.PeerListener.Close())
	}
	r, err := replica.New(replicaConfig(cfg, rec))
	if err == nil && !rec.Fresh {
		err = checkPeers(cfg, r.Members())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %d: %w", cfg.NodeID, err), store.Close(), cfg.PeerListener.Close())
	}
	l, err := loop.New(cfg.Log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %d: %w", cfg.NodeID, err), store.Close(), cfg.PeerListener.Close())
	}
	if cfg.KeepProcessors {
		l.KeepProcessor()
	}
	n := &Node{
		cfg:      cfg,
		replica:  r,
		disk:     newDisk(store),
		loop:     l,
		door:     newDoor(l.Wake),
		ids:      newIDs(cfg.IDs, cfg.Clock, cfg.Loops),
		desk:     desk{open: map[uint64]*front.WorkerRequest{}},
		links:    map[uint64]*peerConn{},
		mail:     newMailbox(l.Wake),
		stop:     make(chan struct{}),
		homeDone: make(chan struct{}),
		failed:   make(chan struct{}),
		refusals: map[uint64]*peer.Refusal{},
		refusing: map[uint64]*peer.Refusal{},
		wall:     cfg.Clock.Wall(),
		began:    cfg.Clock.Mono(),
	}
	for len(n.branches)+1 < cfg.Loops {
		b, err := newBranch(n)
		if err != nil {
			return nil, errors.Join(err, n.closeBranches(), l.Close(), store.Close(), cfg.PeerListener.Close())
		}
		n.branches = append(n.branches, b)
	}
	if cfg.Forward != nil {
		n.forwarder = cfg.Forward(l.Wake)
		for _, b := range n.branches {
			b.forwarder = cfg.Forward(b.loop.Wake)
		}
	}
	n.disk.saved = func(w *replica.Write) {
		n.mail.post(func(in *mail) { in.persisted = w })
	}
	n.disk.failed = n.fail
	n.disk.observe = cfg.Metrics.ObserveStorageWrite
	n.transport = n.newTransport()
	cfg.Log.Info("node started", "node", cfg.NodeID, "dir", cfg.DataDir, "fresh", rec.Fresh, "start", rec.Identity.Boot,
		"cluster", fmt.Sprintf("%016x", rec.Identity.ClusterID), "incarnation", fmt.Sprintf("%016x", rec.Identity.Incarnation))
	n.publish()
	go n.disk.run()
	go n.run()
	for _, b := range n.branches {
		go b.run()
	}
	return n, nil
}

// checkPeers refuses a directory whose cluster is not the one that PEERS names. PEERS
// only sets up an empty directory; one that was set up for a single node would go on
// alone while the others form a cluster of their own.
func checkPeers(cfg Config, members []replica.Member) error {
	for _, id := range slices.Sorted(maps.Keys(cfg.Peers)) {
		known := len(members) == 0 // it joined and has not heard from the others yet
		for _, m := range members {
			known = known || m.ID == id
		}
		if !known {
			return fmt.Errorf("PEERS names node %d, which is no member of the cluster in %s (%d in all): "+
				"PEERS sets up an empty directory and does not change a cluster; name its members, or start with another DATA_DIR",
				id, cfg.DataDir, len(members))
		}
	}
	return nil
}

func replicaConfig(cfg Config, rec storage.Recovered) replica.Config {
	interval := cfg.EpochInterval
	if interval == 0 {
		interval = reservationInterval
	}
	return replica.Config{
		Self: replica.Hello{
			ClusterID: rec.Identity.ClusterID, NodeID: cfg.NodeID, Incarnation: rec.Identity.Incarnation,
			Boot: rec.Identity.Boot, Session: random(), VotersHash: hashIDs(cfg.Peers), ClientAddr: cfg.ClientAddr,
			PeerAddr: cfg.Peers[cfg.NodeID],
		},
		Founders:              initialMembers(cfg.Peers),
		HardState:             rec.HardState,
		Snapshot:              rec.Snapshot,
		Entries:               rec.Entries,
		ClusterSeed:           random(),
		EpochTicks:            max(1, int((interval+cfg.Tick-1)/cfg.Tick)),
		EpochInterval:         cfg.EpochInterval,
		TickInterval:          cfg.Tick,
		ReservationsMissedMax: cfg.ReservationsMissedMax,
		QueueMax:              cfg.RequestsMax,
		RequestTicks:          max(1, int(requestWait/cfg.Tick)),
		SnapshotEvery:         snapshotEvery,
		ClockJumpMax:          cfg.ClockJumpMax,
		LeaseMillis:           uint64(cfg.IDs.Lease.Milliseconds()),
		Workers:               cfg.IDs.workers(cfg.Loops),
		IDClock:               func() int64 { return cfg.Clock.Wall().UnixMilli() },
		Space:                 oracle.Space(cfg.IDs.Layout),
		FixedWorker:           cfg.IDs.FixedWorker,
		Log:                   raftLog{cfg.Log},
	}
}

func initialMembers(peers map[uint64]string) []oracle.Member {
	var list []oracle.Member
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, oracle.Member{ID: id, PeerAddr: peers[id]})
	}
	return list
}

// hashIDs tells lists of initial members apart. Addresses do not count: hosts may
// know each other under different names.
func hashIDs(peers map[uint64]string) uint64 {
	h := fnv.New64a()
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		_ = binary.Write(h, binary.BigEndian, id)
	}
	return h.Sum64()
}

// random returns a random number that is not 0.
func random() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		if v := binary.BigEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}

// Submit takes a batch of requests; see front.Backend.
func (n *Node) Submit(b *front.Batch) {
	if err := n.door.submit(b); err != nil {
		b.Err = err
		b.Done(b)
	}
}

// What clients are told when a node ends. The reason of a failure is for the log.
var errFailed = isotone.Errorf(isotone.CodeNoLeader, "this node has failed and stops")
var errStopped = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")

// Status returns what the node knows; see front.Backend.
func (n *Node) Status() *front.Status { return n.status.Load() }

// Failed is closed when the node cannot go on: its disk failed, or its data
// directory is not the one that the cluster knows. [Node.Err] says why.
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

// fail ends the node because of err. Requests get no answer any more, and nothing
// is written; Close still has to be called.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.err = err
		close(n.failed)
	})
	n.end()
}

// end makes the loop return.
func (n *Node) end() {
	n.stopOnce.Do(func() { close(n.stop) })
	n.loop.Wake()
	for _, b := range n.branches {
		b.end()
	}
}

// closeBranches closes the loops of branches that do not run.
func (n *Node) closeBranches() error {
	var err error
	for _, b := range n.branches {
		err = errors.Join(err, b.loop.Close())
	}
	return err
}

// HandOver makes another member the leader, if this node leads and there is one. It
// returns when another leader is known, when there is nobody to hand over to, or
// with ctx. The node goes on serving meanwhile.
func (n *Node) HandOver(ctx context.Context) error {
	led := make(chan struct{})
	asked := n.mail.post(func(in *mail) {
		in.calls = append(in.calls, func() { n.handOver(led) })
	})
	if !asked {
		return nil
	}
	select {
	case <-led:
		return nil
	case <-n.homeDone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node %d: hand leadership over: %w", n.cfg.NodeID, context.Cause(ctx))
	}
}

// Close stops the node and joins its goroutines. Requests that wait are answered
// with isotone.ErrNoLeader. Writes that were given out become durable first, unless
// the disk has failed.
func (n *Node) Close() error {
	n.end()
	<-n.homeDone
	for _, b := range n.branches {
		<-b.done
	}
	err := n.transport.Close()
	return errors.Join(err, n.disk.close())
}

// call runs f on the loop's goroutine and waits for it. It returns false, and f may
// not have run, if the node stops first.
func (n *Node) call(f func()) bool {
	done := make(chan struct{})
	if !n.mail.post(func(in *mail) {
		in.calls = append(in.calls, func() { f(); close(done) })
	}) {
		return false
	}
	select {
	case <-done:
		return true
	case <-n.homeDone:
		return false
	}
}
