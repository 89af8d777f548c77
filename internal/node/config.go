package node

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

// Config says what a node is and where its edges are. All fields are required
// unless their comment says otherwise.
type Config struct {
	// NodeID is the ID of this member: for an old data directory the one in it.
	NodeID uint64
	// Peers holds peer addresses by node ID, this node's among them. Those of the initial members form
	// the cluster; then a member is dialed there if it does not answer at its address on record.
	Peers map[uint64]string
	// PeersAssumed is set if Peers has this node alone because nothing else was set: at the address where
	// it listens, which need not be where others reach it. It is not set if that is any free port: nothing else can be right then.
	PeersAssumed bool
	// Join, if not nil, has the node join a cluster with an empty data directory. Peers is
	// ignored.
	Join *Join
	// Priority is PRIORITY.
	Priority int64
	// PeerListener accepts the other members. The node owns it from Start on.
	PeerListener net.Listener
	// PeerTLS, if not nil, protects the connections with the other members.
	PeerTLS *PeerTLS
	// PeerInsecure is PEER_INSECURE; see peer.Config.Insecure.
	PeerInsecure bool
	// CarryInPlaintext lets members in plaintext pass on requests of operators, as PeerInsecure does: set it only if everybody who can
	// connect is an operator anyway. Otherwise only members with a certificate may.
	CarryInPlaintext bool
	// Told, if not nil, is called with each report of another member; see Node.Tell. It must be quick, and does not keep the report.
	Told func(report []byte)
	// CheckPeers, if not nil, has the node not start if it fails for the addresses of the other
	// members on record.
	CheckPeers func(addrs map[uint64]string) error
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
	// Timelines permits to create and to change timelines while this node leads.
	Timelines bool
	// GroupSettle is how long a process has to be connected to this node, while it leads, before groups of timelines are moved to it from owners
	// that are there. 0: this node owns each group whose owner is gone, and moves none.
	GroupSettle time.Duration
	// Interval is INTERVAL_MS; 0: no intervals of the cluster clock.
	Interval time.Duration
	// Tick is RTT_MS.
	Tick time.Duration
	// Loops is how many loops own client connections, the core loop among them; 0 means 1.
	Loops int
	// KeepProcessors lets the loops keep their processors while they sleep; see
	// loop.Loop.KeepProcessor for what the program owes them.
	KeepProcessors bool
	// Mode is used for batches that do not choose theirs; ReadDefault means quorum.
	Mode isotone.ReadMode
	// IDs says which snowflake ids the node makes; the zero value disables them.
	IDs IDConfig
	// Forward, if not nil, returns what asks the leader when this node does not lead. It is
	// called once for each loop; wake ends a sleep of that loop.
	Forward func(wake func()) Forwarder
	// Clock is the system's if nil.
	Clock Clock
	// Level is the newest feature level that the node knows; 0 stands for that of this version.
	Level   uint64
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// Trace, if not nil, takes the spans of the core.
	Trace *trace.Exporter
	// StorageFault is a seam for tests: storage.Options.BeforeCommit.
	StorageFault func() error
	// Steps is nil but in builds for tests.
	Steps Steps
	// Observe, if not nil, returns who sees the steps of the replica, nil for nobody.
	Observe func(replica.Config) replica.Observer
	// SnapshotEvery is the number of log entries between snapshots; 0 means snapshotEvery. Only builds for tests set it.
	SnapshotEvery uint64
}

// Join says which cluster a node joins.
type Join struct {
	ClusterID uint64
	// Peers has the peer addresses of the members by member ID, this node among them.
	Peers map[uint64]string
}

// joinedCluster returns the ID of the cluster to join, 0 for none.
func (c *Config) joinedCluster() uint64 {
	if c.Join == nil {
		return 0
	}
	return c.Join.ClusterID
}

// configuredAddr returns the address of a member in Peers, or that it had when this node joined; "" if
// there is none.
func (c *Config) configuredAddr(id uint64) string {
	switch {
	case c.Join != nil:
		return c.Join.Peers[id]
	case id != c.NodeID && oracle.NodeOf(id) == oracle.NodeOf(c.NodeID):
		return "" // Peers has this node, and not the member that it replaces
	}
	return c.Peers[oracle.NodeOf(id)]
}

// requestWait is how long a request waits for a leader to be able to answer it.
const requestWait = 5 * time.Second

// reservationInterval paces reservations when EpochInterval is 0.
const reservationInterval = 100 * time.Millisecond

// snapshotEvery is how many log entries lie between snapshots: at ten reservations a
// second, a few minutes and some 100 kB of log.
const snapshotEvery = 4096

// checkPeers compares PEERS with the members of the cluster in an old data directory. PEERS
// only forms a cluster, and changes no members later; see logPeers. But a node that formed a
// cluster alone is refused if it is to be one of several: it would go on alone while the others
// form a cluster of their own.
func checkPeers(cfg Config, members []replica.Member, removed []uint64) error {
	strangers, _ := differingPeers(cfg.Peers, members)
	if len(members) == 1 && len(removed) == 0 && len(strangers) > 0 {
		return fmt.Errorf("PEERS names node %d, which is no member of the cluster in %s (%d in all): "+
			"PEERS sets up an empty directory and does not change a cluster; name its members, or start with another DATA_DIR",
			strangers[0], cfg.DataDir, len(members))
	}
	return nil
}

// checkRecorded calls Config.CheckPeers with the addresses of the other nodes that are in the log or
// the snapshot, which Raft has not applied yet. A member that was removed since the snapshot may be
// among them.
func checkRecorded(cfg Config, rec storage.Recovered) error {
	if cfg.CheckPeers == nil || rec.Snapshot == nil {
		return nil
	}
	b, err := replica.BackupOf(cfg.Level, rec.HardState, rec.Snapshot, rec.Entries)
	if err != nil {
		return err
	}
	state, err := oracle.DecodeState(b.State)
	if err != nil {
		return err
	}
	addrs := map[uint64]string{}
	for _, m := range state.Members {
		if m.ID != cfg.NodeID && m.PeerAddr != "" {
			addrs[oracle.NodeOf(m.ID)] = m.PeerAddr
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	return cfg.CheckPeers(addrs)
}

// differingPeers returns the nodes in PEERS that are no members, and those that have another
// address by now. The members of a new cluster have none on record for a moment.
func differingPeers(peers map[uint64]string, members []replica.Member) (strangers, moved []uint64) {
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		i := slices.IndexFunc(members, func(m replica.Member) bool { return oracle.NodeOf(m.ID) == id })
		switch {
		case i < 0:
			strangers = append(strangers, id)
		case members[i].PeerAddr != "" && members[i].PeerAddr != peers[id]:
			moved = append(moved, id)
		}
	}
	return strangers, moved
}

func replicaConfig(cfg Config, rec storage.Recovered) replica.Config {
	interval := cfg.EpochInterval
	if interval == 0 {
		interval = reservationInterval
	}
	self := replica.Hello{
		ClusterID: rec.Identity.ClusterID, NodeID: cfg.NodeID, Incarnation: rec.Identity.Incarnation,
		Boot: rec.Identity.Boot, Session: random(), ClientAddr: cfg.ClientAddr, Priority: cfg.Priority,
	}
	var founders []oracle.Member
	if cfg.Join != nil {
		self.PeerAddr = cfg.Join.Peers[cfg.NodeID]
	} else {
		self.PeerAddr, self.VotersHash, founders = cfg.Peers[oracle.NodeOf(cfg.NodeID)], hashIDs(cfg.Peers), initialMembers(cfg.Peers)
		self.Configured = !cfg.PeersAssumed
	}
	c := replica.Config{
		Self:                  self,
		Level:                 cfg.Level,
		Founders:              founders,
		HardState:             rec.HardState,
		Snapshot:              rec.Snapshot,
		Entries:               rec.Entries,
		EpochTicks:            max(1, int((interval+cfg.Tick-1)/cfg.Tick)),
		EpochInterval:         cfg.EpochInterval,
		TickInterval:          cfg.Tick,
		ReservationsMissedMax: cfg.ReservationsMissedMax,
		QueueMax:              cfg.RequestsMax,
		RequestTicks:          max(1, int(requestWait/cfg.Tick)),
		SettleTicks:           int((cfg.GroupSettle + cfg.Tick - 1) / cfg.Tick),
		SnapshotEvery:         cmp.Or(cfg.SnapshotEvery, snapshotEvery),
		ClockJumpMax:          cfg.ClockJumpMax,
		Interval:              cfg.Interval,
		LeaseMillis:           uint64(cfg.IDs.Lease.Milliseconds()),
		Workers:               cfg.IDs.workers(cfg.Loops),
		IDClock:               func() int64 { return cfg.Clock.Wall().UnixMilli() },
		Space:                 oracle.Space(cfg.IDs.Layout),
		FixedWorker:           cfg.IDs.FixedWorker,
		Log:                   raftLog{cfg.Log},
	}
	if cfg.Observe != nil {
		c.Observer = cfg.Observe(c)
	}
	return c
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
