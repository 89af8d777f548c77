package replica

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Raft's timing in ticks. Raft draws each election timeout from
// [electionTicks, 2·electionTicks).
const (
	electionTicks  = 20
	heartbeatTicks = 1
)

// Limits of Raft's memory and messages. Ten entries of some 100 bytes a second reach them
// only when a member is far behind.
const (
	messageBytesMax     = 64 << 10
	uncommittedBytesMax = 1 << 20
	inflightMessagesMax = 64
)

// reserveIntervals is how many epoch intervals a reservation reaches ahead of the clock: so
// many slow commits in a row pass before time holds.
const reserveIntervals = 4

// Config sets up a [Replica].
type Config struct {
	// Self is what this node says about itself to its peers. NodeID, Incarnation and Session
	// must not be 0. [New] sets TickNanos, Level and Founders.
	Self Hello
	// Founders are the initial members of the cluster, this node among them, with their
	// PeerAddr. Ignored unless the directory is empty. Nil on an empty directory: the node
	// joins an existing cluster.
	Founders []oracle.Member
	// Seed, if not nil, has the founders restore a cluster. It counts until the cluster is
	// formed.
	Seed *Seed
	// HardState, Snapshot and Entries are what storage recovered; nil on an empty
	// directory.
	HardState *raftpb.HardState
	Snapshot  *raftpb.Snapshot
	Entries   []*raftpb.Entry
	// Level is the newest feature level that this node knows. 0 stands for oracle.LevelNewest; tests and
	// simulations set the next one to run a future version.
	Level uint64
	// EpochTicks is the number of ticks between reservations, and the length of an epoch
	// unless EpochInterval is 0; at least 1.
	EpochTicks int
	// EpochInterval is the length of one epoch. 0: a new epoch begins with each confirmed
	// round.
	EpochInterval time.Duration
	// TickInterval is the length of one tick; positive, and the same on all members.
	TickInterval time.Duration
	// ReservationsMissedMax is how many late reservations in a row make the leader transfer
	// its leadership; at least 1.
	ReservationsMissedMax int
	// QueueMax bounds the requests that wait for a round, counted by Request.Counts; at least
	// 1. Beyond it they fail with isotone.ErrOverloaded.
	QueueMax int
	// RequestTicks is how long a request may wait before it fails with
	// isotone.ErrDeadlineExceeded; at least 1.
	RequestTicks int
	// SettleTicks is how long a process has to be connected to the leader before groups of timelines are moved to it from owners that are
	// there. 0: the leader owns each group whose owner is gone, and moves none.
	SettleTicks int
	// Observer, if not nil, sees each step.
	Observer Observer
	// SnapshotEvery is the number of applied entries between two snapshots; at least 2.
	SnapshotEvery uint64
	// ClockJumpMax bounds how far the clamped clock of this node may be from the quorum's
	// clock (I11). 0 removes the bound.
	ClockJumpMax time.Duration
	// Interval is the length of the limits of the cluster clock (I14): 0, or interval.LimitMin to
	// interval.LimitMax. 0 disables it.
	Interval time.Duration
	// LeaseMillis is the length of this node's worker leases in milliseconds, at most
	// oracle.LeaseMax. 0 disables ids.
	LeaseMillis uint64
	// Workers is the number of workers to lease, at most oracle.SlotsMax. This and the
	// following count only with LeaseMillis.
	Workers int
	// IDClock is the clock of the generators in unix milliseconds, called by any goroutine
	// that asks for ids. Nil stands for the system's clock.
	IDClock func() int64
	// IDAheadMax is snowflake.Options.AheadMax.
	IDAheadMax time.Duration
	// Space is the layout of ids.
	Space oracle.Space
	// FixedWorker is the one worker to lease, or oracle.AnyWorker. With a fixed worker,
	// Workers is at most 1.
	FixedWorker int
	// Log receives Raft's log lines.
	Log raft.Logger
}

// Validate returns all faults of c, joined, or nil. It changes nothing.
func (c *Config) Validate() error {
	var faults []error
	check := func(name string, ok bool) {
		if !ok {
			faults = append(faults, fmt.Errorf("replica: %s is out of range", name))
		}
	}
	check("Self.NodeID", c.Self.NodeID != 0)
	check("Self.Incarnation", c.Self.Incarnation != 0)
	check("Self.Session", c.Self.Session != 0)
	check("EpochTicks", c.EpochTicks > 0)
	check("EpochInterval", c.EpochInterval >= 0)
	check("TickInterval", c.TickInterval > 0)
	check("ReservationsMissedMax", c.ReservationsMissedMax > 0)
	check("QueueMax", c.QueueMax > 0)
	check("RequestTicks", c.RequestTicks > 0)
	check("SettleTicks", c.SettleTicks >= 0)
	check("SnapshotEvery", c.SnapshotEvery > 1)
	check("ClockJumpMax", c.ClockJumpMax >= 0)
	check("Interval", c.Interval == 0 || c.Interval >= interval.LimitMin && c.Interval <= interval.LimitMax)
	check("Log", c.Log != nil)
	if c.LeaseMillis > 0 {
		anyWorker := c.FixedWorker == oracle.AnyWorker
		check("Space", c.Space.IsValid())
		check("FixedWorker", anyWorker || c.FixedWorker >= 0 && (c.FixedWorker < c.Space.Workers() || !c.Space.IsValid()))
		check("LeaseMillis", c.LeaseMillis <= oracle.LeaseMax)
		check("Workers", c.Workers >= 0 && c.Workers <= oracle.SlotsMax && (anyWorker || c.Workers <= 1))
	}
	return errors.Join(faults...)
}

// Replica is one member of a cluster: its Raft state, its copy of the oracle's state and,
// while it leads, the allocator and the waiting requests. It composes the parts that decide; see the
// package's comment. Use [New]. Not safe for concurrent use.
type Replica struct {
	facts

	snapshotted    uint64 // index of the latest snapshot, whoever made it
	membersChanged bool   // since that snapshot

	clocks     clocks
	tail       tail
	digests    digests
	admission  admission
	membership membership
	succession succession
	ids        ids
	interval   intervals
	load       load // of queue and owner
	queue      queue
	// owner answers for the timelines that this process owns while it does not lead; see owner.go.
	owner owner
	// leading belongs to the present term and role.
	leading leading
}

// compose connects the parts of a replica.
func (r *Replica) compose() {
	f := &r.facts
	r.clocks.facts, r.digests.facts, r.succession.facts, r.interval.facts, r.queue.facts, r.tail.facts = f, f, f, f, f, f
	r.admission.facts, r.admission.leading = f, &r.leading
	r.membership.facts, r.membership.leading, r.membership.tail = f, &r.leading, &r.tail
	r.queue.load = &r.load
	r.owner.facts, r.owner.clocks, r.owner.tail, r.owner.load = f, &r.clocks, &r.tail, &r.load
	r.ids.facts, r.ids.clocks, r.ids.tail = f, &r.clocks, &r.tail
	r.leading = newLeading(r)
}

// Counters count since New. They only grow.
type Counters struct {
	Reservations       uint64 // applied, as leader
	ReservationsFailed uint64 // late or not proposed, as leader
	RoundsFailed       uint64 // dropped by a change of term or role
	Elections          uint64 // changes of leader seen
	LeadersForgotten   uint64 // leaders that were silent or refused connections
	Expired            uint64 // requests answered with ErrDeadlineExceeded
	Overloaded         uint64 // requests refused because the queue was full
	LeasesLost         uint64 // read leases that ended, by time or with the leadership
	LeaseServed        uint64 // requests answered by lease
	LeaseIssued        uint64 // timestamps issued by lease
	LeaseMisses        uint64 // requests in lease mode that waited for a round
	FloorsPassed       uint64 // floors of clients that took time ahead, below the ceiling
	FloorsRaised       uint64 // floors of clients that were proposed
	FloorsRefused      uint64 // requests refused with isotone.CodeRegressed
	ProposalsDropped   uint64 // of other members: not allowed, or this node could not propose
	SessionsClosed     uint64 // sessions of clients that were ended by them
	SessionsLost       uint64 // sessions that ended because their clients were silent, or had no connection
	SessionsBroken     uint64 // sessions that operators have ended
	SealsAsked         uint64 // seals of frontiers that clients were asked for
}

// New builds a replica from what storage recovered. It returns the faults of cfg, or an
// error if it cannot decode what was recovered.
func New(cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Level == 0 {
		cfg.Level = oracle.LevelNewest
	}
	cfg.Self.TickNanos, cfg.Self.Level = uint64(cfg.TickInterval), cfg.Level
	if cfg.Seed != nil {
		cfg.Self.SeedDigest, cfg.Self.SeedFloor = cfg.Seed.Digest, cfg.Seed.Floor
	}
	r := &Replica{
		facts: facts{cfg: cfg, log: raft.NewMemoryStorage(), conf: &raftpb.ConfState{}, peers: map[uint64]*peerView{}},
		load:  load{max: cfg.QueueMax, timelines: map[string]int{}}, owner: owner{issuers: map[string]*issuer{}, lease: ownerLease{waits: map[string]tenureWait{}}},
	}
	r.interval = newIntervals(&r.cfg)
	if cfg.LeaseMillis > 0 {
		r.ids = newIDs(cfg.Workers)
	}
	r.compose()
	r.succession.promised.until = mutant.Pick(mutant.VoteAfterRestart, 0, uint64(electionTicks))
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

// startRaft starts Raft from the durable log. A sole member campaigns at once.
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
		// The leader that issues from a reservation must have proposed it.
		DisableProposalForwarding: true,
		// Otherwise a leader that was removed and left one other voter would still confirm its
		// own rounds.
		StepDownOnRemoval: true,
		Logger:            r.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("replica: start raft: %w", err)
	}
	r.raw = raw
	r.observe()
	r.elected.term = r.term // whether it had a leader is not known
	if r.isAlone() {
		// Nobody else can object, vote or hold a lease.
		if err := raw.Campaign(); err != nil {
			return fmt.Errorf("replica: campaign as sole member: %w", err)
		}
	}
	return nil
}

// recover fills the log and the oracle's state from cfg.
func (r *Replica) recover() error {
	if r.cfg.Snapshot == nil && len(r.cfg.Entries) == 0 && len(r.cfg.Founders) > 0 {
		if err := r.cfg.Seed.check(r.cfg.Level); err != nil {
			return err
		}
		r.forming = newFormation(&r.facts, r.cfg.Founders, r.cfg.Seed)
		r.state.Members = r.forming.founders
		r.cfg.Self.Founders = list(idsOf(r.forming.founders))
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
		r.durable.term, r.voted = r.cfg.HardState.GetTerm(), r.cfg.HardState.GetVote()
	}
	if err := r.log.Append(r.cfg.Entries); err != nil {
		return fmt.Errorf("replica: recovered log: %w", err)
	}
	r.tail.noteFences(r.cfg.Snapshot, r.cfg.Entries)
	for _, e := range r.cfg.Entries {
		if c, ok := reservation(e); ok {
			r.recoveredCeiling = max(r.recoveredCeiling, min(c.Target, oracle.CeilingMax))
		}
	}
	last, err := r.log.LastIndex()
	if err != nil {
		return fmt.Errorf("replica: recovered log: %w", err)
	}
	r.durable.index = last
	if r.cfg.Snapshot != nil && r.durable == (position{term: 1, index: 1}) && r.state.ClusterID != 0 {
		// Nobody has voted yet, and perhaps not everyone is prepared.
		r.forming = newFormation(&r.facts, r.state.Members, r.cfg.Seed)
		r.forming.prepared = r.cfg.Snapshot
		r.cfg.Self.Founders = list(idsOf(r.forming.founders))
	}
	r.cfg.HardState, r.cfg.Snapshot, r.cfg.Entries = nil, nil, nil
	return nil
}

// restore replaces the oracle's state by that of a snapshot.
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
	r.resetRefusals()
	r.admission.forgetStrangers()
	r.owner.forgetDeleted()
	r.effects.Changed = true
	r.ids.updateLeases()
	return nil
}

// isAlone reports whether this node is the only member, counting learners.
func (f *facts) isAlone() bool {
	return len(f.state.Members) == 1 && f.state.Members[0].ID == f.cfg.Self.NodeID && len(f.conf.GetVotersOutgoing()) == 0
}
