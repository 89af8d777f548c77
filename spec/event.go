package spec

// Kind is what an [Event] is about.
type Kind string

// The kinds of events. The events of a process come in their order, and a message is sent before it is received. What a comment says of a process holds for that of the event.
const (
	// Start: the process starts. On its disk are Term, its vote for Peer, and the log up to Index. A tick takes Tick nanoseconds. It belongs to Cluster, 0 if it has not joined one.
	// Limits of the cluster clock are Interval nanoseconds long, 0 if it runs none. It may go by its own wall clock up to Jump nanoseconds beyond those of a quorum, 0 for any way, and its
	// reservations reach Reach nanoseconds ahead. The log asks for Ceiling at most. Members are those of the cluster that it is to form.
	Start Kind = "start"
	// End: later events of the node are not known, though there may be some.
	End Kind = "end"
	// BeginStep: a step begins, and the following events belong to it. At is the steady clock of the process, Real a clock that all processes of the machine share; both in nanoseconds.
	// Wall is its wall clock, in unix nanoseconds. Steady is the clock on which the cluster clock rests, 0 without one.
	BeginStep Kind = "step"
	// Tick: Count ticks have passed.
	Tick Kind = "tick"
	// Durable: Term, the vote for Peer, and the log up to Index are on disk.
	Durable Kind = "durable"
	// Role: the node is in Term, and leads if Leads is set.
	Role Kind = "role"
	// State: after the entries of this step the node has applied Ceiling and all else of State, and it issues timestamps if Serves is set.
	State Kind = "state"
	// Entry: the node applies the entry at Index, of Term, with Command.
	Entry Kind = "entry"
	// Restore: the node applies a snapshot of Cluster at Index, with Config, Ceiling, Holds, and Workers of the layout Space, and Members. Limits of the cluster clock
	// are Interval long at most. Restored is the floor at which a restored cluster has begun, 0 for others, in unix nanoseconds.
	Restore Kind = "restore"
	// Append: entries from Index on replace the end of the log. Fences are the indexes of those that an owner of timelines has to know. A snapshot replaces the whole log, and is one fence at
	// its index. Proposed are those of them that a leader has proposed, and that move time or its limits.
	Append Kind = "append"
	// Cut: a leader of a term that is not over has other entries from Index on than the log. They were not committed, and the log loses them with its next write.
	Cut Kind = "cut"

	// Campaign: the node asks Peer for its vote in Term. Its log ends at Index.
	Campaign Kind = "campaign"
	// Vote: the node votes for Peer in Term. Transfer is set if the leader has asked Peer to take over.
	Vote Kind = "vote"
	// VoteSent: it sends that vote. It says that it has answered no leader for Since nanoseconds. VoteTold: a candidate receives that from Peer.
	VoteSent Kind = "vote-sent"
	VoteTold Kind = "vote-told"
	// Ack: the node acknowledges the log of Term up to Index to Peer.
	Ack Kind = "ack"
	// Transfer: a leader asks Peer to take over.
	Transfer Kind = "transfer"

	// Ask: the leader of Term asks Peer to confirm Round, and to promise Count ticks. Asked: the node is asked so by Peer.
	Ask   Kind = "ask"
	Asked Kind = "asked"
	// Confirm: the node confirms Round to Peer, the leader of Term, and has promised Count ticks; Round is 0 if it only promises. Confirmed: the leader receives that from Peer.
	Confirm   Kind = "confirm"
	Confirmed Kind = "confirmed"
	// AskFence: an owner of timelines asks Peer in Round for the fence of its log. TellFence: the node tells the process Token of Peer in Round that all fences of its log are at Index or
	// below. ToldFence: the owner receives that from Peer.
	AskFence  Kind = "ask-fence"
	TellFence Kind = "tell-fence"
	ToldFence Kind = "told-fence"

	// WorkerLeases: the entries of this step have changed the records of Workers.
	WorkerLeases Kind = "worker-leases"
	// WorkersHeld: the process makes IDs of Workers, and of no others.
	WorkersHeld Kind = "workers-held"

	// ClusterClock: the leader's cluster clock shows Clock when its steady clock shows At, and runs Slew millionths faster than that. AskClock: the node asks Peer for a reading with Token.
	// TellClock: a leader tells Peer the Reading, in answer to Token. ToldClock: the node receives that from Peer, of Cluster. Bounds: when its steady clock shows At, the process may use
	// Reading, by what it knows after this step.
	ClusterClock Kind = "cluster-clock"
	AskClock     Kind = "ask-clock"
	TellClock    Kind = "tell-clock"
	ToldClock    Kind = "told-clock"
	Bounds       Kind = "bounds"

	// Met: Peer has been let in, and says Hello. Prepare: a founder makes the first snapshot, of Cluster with Members and Ceiling. Form: it takes part in that cluster.
	Met     Kind = "met"
	Prepare Kind = "prepare"
	Form    Kind = "form"
	// WallClock: Peer says that its wall clock shows Clock. RaiseFloor: an operator asks for the floor Clock.
	WallClock  Kind = "wall-clock"
	RaiseFloor Kind = "raise-floor"

	// Request: a request with Token arrives, for Timeline, "" for the default order. It may be answered under a lease if Lease is set. The answer has to be above Floor, which may
	// move time ahead of the clocks if Raise is set.
	Request Kind = "request"
	// Answer: the request with Token is answered with Ranges, none if it is refused. Tenure is set for a timeline: what the applied log says of its owner. Reply is set if it was about a session,
	// and was not refused.
	Answer Kind = "answer"

	// Held: after the entries of this step the node has Holds, of the names that these or a snapshot have changed. One without a token is not held.
	Held Kind = "held"

	// Session: what the request with Token says about a session takes effect.
	Session Kind = "session"
	// Gone: the connection Conn of a client has ended.
	Gone Kind = "gone"
	// TellExpired: the client of Conn is told that its session has ended. TellHeld and TellFree: it holds Hold, or does not. AskSeal: it is to have the stores of Group of Stamps refuse what is at or
	// below High. TellFenced: it must not write Stamps any more.
	TellExpired Kind = "tell-expired"
	TellHeld    Kind = "tell-held"
	TellFree    Kind = "tell-free"
	AskSeal     Kind = "ask-seal"
	TellFenced  Kind = "tell-fenced"
	// Frontier: after this step the node tells the frontier High of Group of Stamps.
	Frontier Kind = "frontier"
)

// Event is an event of the process Process of Node. Its [Kind] says which other fields count.
type Event struct {
	Kind     Kind      `json:"k"`
	Node     uint64    `json:"n"`
	Process  uint64    `json:"process,omitempty"`
	Peer     uint64    `json:"p,omitempty"`
	Term     uint64    `json:"t,omitempty"`
	Index    uint64    `json:"i,omitempty"`
	Round    uint64    `json:"r,omitempty"`
	Count    uint64    `json:"c,omitempty"`
	Token    uint64    `json:"token,omitempty"`
	At       int64     `json:"at,omitempty"`
	Real     int64     `json:"real,omitempty"`
	Tick     int64     `json:"tick,omitempty"`
	Cluster  uint64    `json:"cluster,omitempty"`
	Ceiling  uint64    `json:"ceiling,omitempty"`
	Leads    bool      `json:"leads,omitempty"`
	Serves   bool      `json:"serves,omitempty"`
	Transfer bool      `json:"transfer,omitempty"`
	Lease    bool      `json:"lease,omitempty"`
	Raise    bool      `json:"raise,omitempty"`
	Floor    Timestamp `json:"floor,omitzero"`
	Ranges   []Range   `json:"ranges,omitempty"`
	Config   *Config   `json:"config,omitempty"`
	Command  *Command  `json:"command,omitempty"`
	Workers  []Worker  `json:"workers,omitempty"`
	Space    string    `json:"space,omitempty"`
	Fences   []uint64  `json:"fences,omitempty"`
	Timeline string    `json:"timeline,omitempty"`
	Tenure   *Tenure   `json:"tenure,omitempty"`
	Hello    *Hello    `json:"hello,omitempty"`
	Members  []Member  `json:"members,omitempty"`
	// State is a digest of what is applied.
	State uint64 `json:"state,omitempty"`
	// Those of clocks.
	Wall     uint64     `json:"wall,omitempty"`
	Jump     uint64     `json:"jump,omitempty"`
	Reach    uint64     `json:"reach,omitempty"`
	Interval int64      `json:"interval,omitempty"`
	Steady   int64      `json:"steady,omitempty"`
	Since    int64      `json:"since,omitempty"`
	Proposed []Proposal `json:"proposed,omitempty"`
	Clock    uint64     `json:"clock,omitempty"`
	Slew     int64      `json:"slew,omitempty"`
	Reading  *Reading   `json:"reading,omitempty"`

	Session  *SessionRequest `json:"session,omitempty"`
	Reply    *Reply          `json:"reply,omitempty"`
	Conn     uint64          `json:"conn,omitempty"`
	Hold     *Hold           `json:"hold,omitempty"`
	Stamps   *Stamps         `json:"stamps,omitempty"`
	Holds    []Hold          `json:"holds,omitempty"`
	Restored uint64          `json:"restored,omitempty"`
}

// Timestamp is ordered by Time, in unix nanoseconds, then by Index.
type Timestamp struct {
	Time  uint64 `json:"t"`
	Index uint64 `json:"i"`
}

// Before reports whether t is smaller than o.
func (t Timestamp) Before(o Timestamp) bool {
	return t.Time < o.Time || t.Time == o.Time && t.Index < o.Index
}

func larger(a, b Timestamp) Timestamp {
	if a.Before(b) {
		return b
	}
	return a
}

// Range is the timestamps from First to Last.
type Range struct {
	First Timestamp `json:"f"`
	Last  Timestamp `json:"l"`
}

// Config has the voters. In a joint configuration, a majority of both lists counts.
type Config struct {
	Voters   []uint64 `json:"voters"`
	Outgoing []uint64 `json:"outgoing,omitempty"`
}

// Proposal is an entry that a leader has proposed.
type Proposal struct {
	Index   uint64   `json:"i"`
	Command *Command `json:"command"`
}

// Command is the command of an entry. One that the specification knows nothing of has its Digest only.
type Command struct {
	// Digest tells commands apart.
	Digest uint64 `json:"digest,omitempty"`
	// Reserve is the ceiling that a reservation asks for, Raise the floor that an operator raises; 0 for none. Both are in unix nanoseconds.
	Reserve uint64 `json:"reserve,omitempty"`
	Raise   uint64 `json:"raise,omitempty"`
	// Level is the feature level to which the cluster is raised.
	Level uint64 `json:"level,omitempty"`
	// Shared is the ceiling of timelines that a reservation asks for, in unix nanoseconds; 0 for none.
	Shared uint64 `json:"shared,omitempty"`
	// Register changes the record of a member. Durable says up to where members have the log on disk.
	Register *Member  `json:"register,omitempty"`
	Durable  []Member `json:"durable,omitempty"`
	// Change changes the voters.
	Change *Change `json:"change,omitempty"`
	// Fence: an owner of timelines has to know of it before it answers.
	Fence bool `json:"fence,omitempty"`
	// Interval, if set, is how long limits of the cluster clock may be from then on, in nanoseconds; 0: none runs.
	Interval *int64 `json:"interval,omitempty"`
	// Locks changes who holds which lock.
	Locks []LockChange `json:"locks,omitempty"`
	// Lease, Release and Revoke change worker leases.
	Lease   *Lease `json:"lease,omitempty"`
	Release []Used `json:"release,omitempty"`
	Revoke  *Used  `json:"revoke,omitempty"`
}

// Change adds and removes voters. With neither it ends a joint configuration.
type Change struct {
	Add    []uint64 `json:"add,omitempty"`
	Remove []uint64 `json:"remove,omitempty"`
	Joint  bool     `json:"joint,omitempty"`
}
