package replica

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
)

// Raft's timing in ticks. The election timeout is drawn anew each time from
// [electionTicks, 2·electionTicks), as DESIGN fixes it.
const (
	electionTicks  = 20
	heartbeatTicks = 1
)

// Limits of what Raft may hold in memory or put in one message. Our entries are
// some 100 bytes and ten a second, so these bind only when a member is far behind.
const (
	messageBytesMax     = 64 << 10
	uncommittedBytesMax = 1 << 20
	inflightMessagesMax = 64
)

// reserveIntervals is how many epoch intervals ahead of the clock a reservation
// reaches: time goes on through that many slow commits in a row before it holds.
const reserveIntervals = 4

// Config sets up a Replica. The zero value of a field means what its comment says.
type Config struct {
	// Self is what this node says of itself to others. NodeID, Incarnation and
	// Session must not be 0.
	Self Hello
	// Founders are the initial members of the cluster, this node among them, with their
	// PeerAddr. They count on an empty directory only. None: the node joins a cluster that
	// exists.
	Founders []oracle.Member
	// HardState, Snapshot and Entries are what storage recovered; nil on an empty
	// directory.
	HardState *raftpb.HardState
	Snapshot  *raftpb.Snapshot
	Entries   []*raftpb.Entry
	// Level is the newest feature level that this node knows; 0 means
	// oracle.LevelNewest. Less is for tests of older versions.
	Level uint64
	// ClusterSeed names the cluster if this node is the first to lead it. Random,
	// not 0.
	ClusterSeed uint64
	// EpochTicks is how many ticks one epoch lasts, at least 1. It is also how often
	// the ceiling is extended.
	EpochTicks int
	// EpochInterval is the length of one epoch. 0 means that time follows the clock
	// at every batch; EpochTicks then still paces the reservations.
	EpochInterval time.Duration
	// TickInterval is the length of one tick.
	TickInterval time.Duration
	// ReservationsMissedMax is how many reservations in a row may be late before the
	// leader hands its leadership on; at least 1.
	ReservationsMissedMax int
	// QueueMax is how many requests may wait for a round; at least 1. Beyond it they
	// are answered with isotone.ErrOverloaded.
	QueueMax int
	// RequestTicks is how long a request may wait before it is answered with
	// isotone.ErrDeadlineExceeded; at least 1.
	RequestTicks int
	// SnapshotEvery is how many applied entries lie between two snapshots; at least 2.
	SnapshotEvery uint64
	// ClockJumpMax is how far ahead of, or behind, the quorum's clock this node's own is
	// believed; 0: always.
	ClockJumpMax time.Duration
	// LeaseMillis is how long the worker leases of this node last, at most
	// oracle.LeaseMax. 0: it makes no ids.
	LeaseMillis uint64
	// Workers is how many workers it leases, at most oracle.SlotsMax. Only with
	// LeaseMillis.
	Workers int
	// IDClock is the clock of the generators, in unix milliseconds; nil is the system's. They
	// call it on whichever goroutine asks for ids.
	IDClock func() int64
	// IDAheadMax is snowflake.Options.AheadMax.
	IDAheadMax time.Duration
	// Space is how it makes ids. Only with LeaseMillis.
	Space oracle.Space
	// FixedWorker is the worker that it insists on, or oracle.AnyWorker. Only with
	// LeaseMillis; a node with a fixed worker holds one lease at most.
	FixedWorker int
	// Log receives Raft's own log lines.
	Log raft.Logger
}

// Validate lists every fault of c.
func (c *Config) Validate() error {
	var faults []error
	positive := func(name string, ok bool) {
		if !ok {
			faults = append(faults, fmt.Errorf("replica: %s is out of range", name))
		}
	}
	positive("Self.NodeID", c.Self.NodeID != 0)
	positive("Self.Incarnation", c.Self.Incarnation != 0)
	positive("Self.Session", c.Self.Session != 0)
	positive("ClusterSeed", c.ClusterSeed != 0)
	positive("EpochTicks", c.EpochTicks > 0)
	positive("EpochInterval", c.EpochInterval >= 0)
	positive("TickInterval", c.TickInterval > 0)
	positive("ReservationsMissedMax", c.ReservationsMissedMax > 0)
	positive("QueueMax", c.QueueMax > 0)
	positive("RequestTicks", c.RequestTicks > 0)
	positive("SnapshotEvery", c.SnapshotEvery > 1)
	positive("ClockJumpMax", c.ClockJumpMax >= 0)
	positive("Log", c.Log != nil)
	return errors.Join(append(faults, c.validateWorkers()...)...)
}

// Replica is one member's Raft state, its copy of the oracle's state, and, while it
// leads, the allocator and the requests that wait.
type Replica struct {
	cfg     Config
	raw     *raft.RawNode       // nil while forming
	log     *raft.MemoryStorage // what is durable, for Raft to read
	state   oracle.State
	conf    *raftpb.ConfState
	applied uint64
	durable position // what this node holds on disk
	naming  bool     // the cluster's name has to go to disk with the next write
	// compact is a snapshot of our own that goes to disk with the next write;
	// snapshotted is the index of the latest one, whoever made it.
	compact *raftpb.Snapshot
	// flying is the write that the caller makes durable, next what has collected since;
	// nil if there is none.
	flying, next *Write
	snapshotted  uint64
	joined       bool   // the membership has changed since
	changedAt    uint64 // the log index of the latest change of membership, or above

	// forming is set until the cluster is formed.
	forming *formation
	// ending is why the node has to stop, nil if it need not, and from which tick on: the
	// other side is to hear of it as well.
	ending   error
	endingAt uint64

	now   uint64
	mono  time.Duration
	ticks uint64 // since the start of the process
	// heartbeat is the tick of the latest heartbeat that this node acknowledged, 0 at
	// the start. For one election timeout after it the node grants no vote.
	heartbeat uint64

	// peers holds what this process knows of each peer from its own dealings.
	peers map[uint64]*peerView

	// term, role and lead are as last observed; everything in leading belongs to
	// exactly this term and role.
	term     uint64
	role     raft.StateType
	lead     uint64
	leading  leading
	queue    queue
	workers  workers
	ids      generators
	time     timekeeper
	digests  digests
	disputed dispute
	// reservedBefore is the largest ceiling that was asked for in the log that was recovered,
	// which is applied later.
	reservedBefore uint64

	mutation mutation
	counters Counters
	effects  Effects
}

// position is a place in a log.
type position struct{ term, index uint64 }

// leading is the volatile state of one leader in one term. It is dropped as a whole
// on every change of term or role (I2).
type leading struct {
	alloc oracle.Allocator
	// reserving is set while a reservation is on its way.
	reserving bool
	// missed counts the reservations in a row that were not applied in time.
	missed int
	// sinceEpoch counts ticks since the last epoch began.
	sinceEpoch int
	lease      lease
	// over is set when there is no time left to issue.
	over bool
	// changing is set while a change of membership is proposed and not applied.
	changing bool
	// clients asked for worker leases, in the order of their proposals.
	clients []clientLease
}

// Counters only grow.
type Counters struct {
	Reservations       uint64 // applied, as leader
	ReservationsFailed uint64 // late or dropped, as leader
	RoundsFailed       uint64 // given up by a change of term or role
	Elections          uint64 // changes of leader seen
	Expired            uint64 // requests whose time ran out
	Overloaded         uint64 // requests refused because the queue was full
	LeasesLost         uint64 // times a lease ended, by time or with the leadership
	LeaseServed        uint64 // requests answered by lease
	LeaseIssued        uint64 // timestamps issued by lease
	LeaseMisses        uint64 // requests in lease mode that had to wait for a round
	ProposalsDropped   uint64 // of other members, not made: no leader, or none of their business
}

// New builds a replica from what storage recovered. It returns an error if the
// configuration is wrong or what was recovered cannot be decoded.
func New(cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Level == 0 {
		cfg.Level = oracle.LevelNewest
	}
	cfg.Self.TickNanos, cfg.Self.Level = uint64(cfg.TickInterval), cfg.Level
	r := &Replica{
		cfg:   cfg,
		log:   raft.NewMemoryStorage(),
		conf:  &raftpb.ConfState{},
		peers: map[uint64]*peerView{},
		queue: queue{max: cfg.QueueMax},
	}
	if cfg.LeaseMillis > 0 {
		r.ids = newGenerators(cfg.Workers)
	}
	if err := r.recover(); err != nil {
		return nil, err
	}
	if r.forming == nil {
		if err := r.startRaft(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// startRaft lets this node take part.
func (r *Replica) startRaft() error {
	raw, err := raft.NewRawNode(&raft.Config{
		ID:                        r.cfg.Self.NodeID,
		ElectionTick:              electionTicks,
		HeartbeatTick:             heartbeatTicks,
		Storage:                   r.log,
		Applied:                   r.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             messageBytesMax,
		MaxUncommittedEntriesSize: uncommittedBytesMax,
		MaxInflightMsgs:           inflightMessagesMax,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		// A reservation must be proposed by the leader that will issue from it.
		DisableProposalForwarding: true,
		// Without it a removed leader would take a cluster of one other voter for a
		// cluster of itself, and confirm its own rounds.
		StepDownOnRemoval: true,
		Logger:            r.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("replica: start raft: %w", err)
	}
	r.raw = raw
	r.observe()
	if r.isAlone() {
		// Nobody else can object, or hold a vote or a lease: there is nothing to wait for.
		if err := raw.Campaign(); err != nil {
			return fmt.Errorf("replica: campaign alone: %w", err)
		}
	}
	return nil
}

// recover fills the log and the oracle's state from the configuration.
func (r *Replica) recover() error {
	if r.cfg.Snapshot == nil && len(r.cfg.Entries) == 0 && len(r.cfg.Founders) > 0 {
		r.forming = newFormation(r.cfg.Founders)
		r.state.Members = r.forming.founders
		r.cfg.Self.Founders = list(r.forming.ids())
		return nil
	}
	if s := r.cfg.Snapshot; s != nil {
		if err := r.restore(s); err != nil {
			return err
		}
		if err := r.log.ApplySnapshot(s); err != nil {
			return fmt.Errorf("replica: recovered snapshot: %w", err)
		}
	}
	if r.cfg.HardState != nil {
		if err := r.log.SetHardState(r.cfg.HardState); err != nil {
			return fmt.Errorf("replica: recovered hard state: %w", err)
		}
		r.durable.term = r.cfg.HardState.GetTerm()
	}
	if err := r.log.Append(r.cfg.Entries); err != nil {
		return fmt.Errorf("replica: recovered log: %w", err)
	}
	for _, e := range r.cfg.Entries {
		if c, err := oracle.DecodeCommand(e.GetData()); err == nil && c.Kind == oracle.KindReserve {
			r.reservedBefore = max(r.reservedBefore, min(c.Target, oracle.CeilingMax))
		}
	}
	last, err := r.log.LastIndex()
	if err != nil {
		return fmt.Errorf("replica: recovered log: %w", err)
	}
	r.durable.index = last
	if r.cfg.Snapshot != nil && r.durable == (position{term: 1, index: 1}) && r.state.ClusterID != 0 {
		// Nobody has voted yet: it may be that not everyone is prepared. (The first snapshot
		// of earlier versions names no cluster; they vote at once.)
		r.forming = newFormation(r.state.Members)
		r.forming.prepared = r.cfg.Snapshot
		r.cfg.Self.Founders = list(r.forming.ids())
	}
	r.cfg.HardState, r.cfg.Snapshot, r.cfg.Entries = nil, nil, nil
	return nil
}

// restore replaces the oracle's state by a snapshot's.
func (r *Replica) restore(s *raftpb.Snapshot) error {
	state, err := oracle.DecodeState(s.GetData())
	if err != nil {
		return fmt.Errorf("replica: snapshot at index %d: %w", s.GetMetadata().GetIndex(), err)
	}
	if err := r.canRead(state.CurrentLevel()); err != nil {
		return fmt.Errorf("replica: snapshot at index %d: %w", s.GetMetadata().GetIndex(), err)
	}
	r.state = r.mutateRestored(state)
	r.conf = s.GetMetadata().GetConfState()
	r.applied = s.GetMetadata().GetIndex()
	r.snapshotted, r.changedAt = r.applied, r.applied
	r.membersChanged()
	r.effects.Changed = true
	r.relist()
	return nil
}

// isAlone reports whether this node is the only member, learners included.
func (r *Replica) isAlone() bool {
	return len(r.state.Members) == 1 && r.state.Members[0].ID == r.cfg.Self.NodeID && len(r.conf.GetVotersOutgoing()) == 0
}
