package spec

// Kind is what an [Event] is about.
type Kind string

// The kinds of events. Those of one node come in their order; one that is sent comes before it is received.
const (
	// Start: a process begins with what is on its disk: Term, Vote in Peer, Index of the end of its log. Tick is the length of its ticks, in nanoseconds,
	// and Cluster its cluster, 0 if it has none yet.
	Start Kind = "start"
	// End: no later events of the node are known, though it may go on.
	End Kind = "end"
	// Turn: a step begins at At, by a steady clock of the process, in nanoseconds. What follows belongs to it. Real is the time by a clock that all processes of a machine share.
	Turn Kind = "turn"
	// Tick: Count ticks have passed.
	Tick Kind = "tick"
	// Durable: Term, the vote for Peer, and the log up to Index are on disk.
	Durable Kind = "durable"
	// Role: the node is in Term, and leads if Leads.
	Role Kind = "role"
	// State: at the end of a step, its ceiling is Ceiling, and it issues timestamps if Serves.
	State Kind = "state"
	// Campaign: it asks Peer for a vote in Term, with a log up to Index.
	Campaign Kind = "campaign"
	// Entry: the node has applied the entry at Index, of Term, with Command.
	Entry Kind = "entry"
	// Restore: the node has applied a snapshot of Cluster up to Index, with Config, Ceiling, and Workers of the layout Space.
	Restore Kind = "restore"
	// Granted: the records of Workers have changed with what was applied in this step.
	Granted Kind = "granted"
	// Held: the process makes ids of Workers, and of no others.
	Held Kind = "held"
	// Vote: the node has decided to vote for Peer in Term; with Transfer, the leader has asked for that.
	Vote Kind = "vote"
	// Grant: it sends that vote.
	Grant Kind = "grant"
	// Ack: it acknowledges the log of Term up to Index to Peer.
	Ack Kind = "ack"
	// Ask: a leader of Term asks Peer to confirm Round, and to promise Count ticks.
	Ask Kind = "ask"
	// Asked: a node is asked that.
	Asked Kind = "asked"
	// Vouch: a node confirms Round to the leader Peer of Term, and has promised Count ticks. Round is 0 if it only promises.
	Vouch Kind = "vouch"
	// Vouched: a leader receives that from Peer.
	Vouched Kind = "vouched"
	// Append: the log from Index on is replaced by entries of which Fences have to be known by whoever answers for a timeline. Of a snapshot that is its last entry.
	Append Kind = "append"
	// AskFence: an owner of timelines asks Peer for the fence of its log, in Round. TellFence: a node tells the process Token of Peer in Round that all fences of its log are at Index or
	// below. ToldFence: an owner receives that from Peer.
	AskFence  Kind = "ask-fence"
	TellFence Kind = "tell-fence"
	ToldFence Kind = "told-fence"
	// Depose: a leader asks Peer to take over.
	Depose Kind = "depose"
	// Request: a request with Token comes, for Timeline if that has a name, that may be answered by a lease if Lease. All answers are to be larger than Floor.
	Request Kind = "request"
	// Answer: the request with Token is answered by Ranges, none if it is refused. Of a timeline, the log that was applied then says Tenure.
	Answer Kind = "answer"
)

// Event is one event of a run, in the process with the number Process of Node. Which other fields count says its [Kind].
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
	Floor    Timestamp `json:"floor,omitzero"`
	Ranges   []Range   `json:"ranges,omitempty"`
	Config   *Config   `json:"config,omitempty"`
	Command  *Command  `json:"command,omitempty"`
	Workers  []Worker  `json:"workers,omitempty"`
	Space    string    `json:"space,omitempty"`
	Fences   []uint64  `json:"fences,omitempty"`
	Timeline string    `json:"timeline,omitempty"`
	Tenure   *Tenure   `json:"tenure,omitempty"`
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

// Config is who votes. While one configuration follows another, a majority of both lists counts.
type Config struct {
	Voters   []uint64 `json:"voters"`
	Outgoing []uint64 `json:"outgoing,omitempty"`
}

// Command is what an entry of the log changes. One that changes nothing of this specification has its Digest only.
type Command struct {
	// Digest tells commands apart.
	Digest uint64 `json:"digest,omitempty"`
	// Reserve is the ceiling that the leader asks for, Raise a floor that an operator sets; 0 for none. Both are in unix nanoseconds.
	Reserve uint64 `json:"reserve,omitempty"`
	Raise   uint64 `json:"raise,omitempty"`
	// Change changes who votes.
	Change *Change `json:"change,omitempty"`
	// Fence: whoever answers for a timeline has to know of it.
	Fence bool `json:"fence,omitempty"`
	// Lease, Release and Revoke are about workers.
	Lease   *Lease `json:"lease,omitempty"`
	Release []Used `json:"release,omitempty"`
	Revoke  *Used  `json:"revoke,omitempty"`
}

// Change makes members voters, or takes their vote away. Without either it ends a joint configuration.
type Change struct {
	Add    []uint64 `json:"add,omitempty"`
	Remove []uint64 `json:"remove,omitempty"`
	Joint  bool     `json:"joint,omitempty"`
}
