package front

import (
	"fmt"
	"math"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/session"
)

// Sessions has the leader's sessions of clients, with their locks and frontiers, for the fronts in one loop. It belongs to that loop's goroutine; that of the standard servers is safe for
// concurrent use, and calls back on the goroutine of the core. A node that does not lead answers with an error that names the leader.
type Sessions interface {
	// OpenSession returns the number of a new connection of a client. tell is called with each message to it, on the loop's goroutine, and not within a call. Answers and messages
	// come in the order in which the core gave them.
	OpenSession(tell func(session.Message)) session.Conn
	// CloseSession notes that a connection has ended. Nothing is told over it any more; what it has asked is still answered.
	CloseSession(conn session.Conn)
	// AskSession hands r over, and calls Done exactly once, not within the call.
	AskSession(r *SessionRequest)
	// WatchSessions hands w over, and calls Done exactly once, not within the call.
	WatchSessions(w *SessionWatch)
}

// SessionRequest is a request over the connection of a session. The backend owns it until Done.
type SessionRequest struct {
	session.Request
	// Count is the number of timestamps that are asked for, 0 for none, of 64 bits with U64. Range is the answer, as in [Batch.Ranges].
	Count uint64
	U64   bool
	Range isotone.Range
	// Account, with a Bind, is what the session counts for; nil: it counts for none.
	Account *access.Account
	// Err is in the vocabulary. Reply is set if it is nil.
	Err  error
	Done func(*SessionRequest)
}

// SessionWatch reads the frontier of a group or the holder of a lock, and may wait for it to change. It needs no session. The backend owns it until Done.
type SessionWatch struct {
	// Group, if not "", asks for a frontier. The answer waits until that is At or more.
	Group string
	At    isotone.Timestamp
	// Lock, if not "", asks for the holder of a lock. The answer waits until its token is not After; 0 stands for nobody.
	Lock  string
	After isotone.Timestamp64
	// Prefix asks for all locks whose names begin so, if neither Group nor Lock is set.
	Prefix string
	// Blockers asks, with Group, for what keeps its frontier from going on. It does not wait.
	Blockers bool
	// Wait bounds the wait, from when the core has it. Then it is answered with what there is.
	Wait time.Duration

	Frontier isotone.Timestamp
	// Holders has the holder of the lock, or those of all locks by name, as far as the leader knows: one that is deposed, and does not know it yet, may not know the latest.
	Holders []Holder
	// Blocked is what keeps a frontier from going on, the lowest stamps first.
	Blocked []Blocker
	Err     error
	Done    func(*SessionWatch)
}

// Above returns the smallest timestamp above t, which is not the last one: a frontier that has grown beyond t is at or above it.
func Above(t isotone.Timestamp) isotone.Timestamp {
	if t.Index == math.MaxUint64 {
		return isotone.Timestamp{Time: t.Time + 1}
	}
	return isotone.Timestamp{Time: t.Time, Index: t.Index + 1}
}

// Holder describes who holds a lock.
type Holder struct {
	Name  string
	Token isotone.Timestamp64
	// Value is what the holder tells others.
	Value string
	// Session is a hash of the holder's session, as its ID is a secret. Label is what its client calls it, "" if this leader does not know it yet.
	Session uint64
	Label   string
}

// SessionHash returns the form of the hash of a session that others are told.
func SessionHash(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// LockList describes locks that are held, by name.
type LockList struct {
	Locks []LockRecord `json:"locks"`
	// More is set if there may be more than are listed: name a longer prefix.
	More bool `json:"more,omitempty"`
}

// LockRecord describes a lock that is held.
type LockRecord struct {
	Name string `json:"name"`
	// Token and Token64 are the two forms of the token, as text.
	Token   string              `json:"token"`
	Token64 isotone.Timestamp64 `json:"token64"`
	// Since is when it was granted, by oracle time, in RFC 3339.
	Since string `json:"since"`
	// Value is what the holder tells others, Session a hash of its session, Label what its client calls that.
	Value   string `json:"value,omitempty"`
	Session string `json:"session"`
	Label   string `json:"label,omitempty"`
}

// LockBroken answers who has broken a lock.
type LockBroken struct {
	Name    string              `json:"name"`
	Token   string              `json:"token"`
	Token64 isotone.Timestamp64 `json:"token64"`
	// FreeAfter is how long the lock may still be held, in seconds.
	FreeAfter float64 `json:"freeAfter"`
}

// BlockerList describes the frontier of a group, and what keeps it from going on, the lowest stamps first; at most 100.
type BlockerList struct {
	Group    string          `json:"group"`
	Frontier string          `json:"frontier"`
	Blockers []BlockerRecord `json:"blockers"`
}

// BlockerRecord is a [Blocker].
type BlockerRecord struct {
	// Session is "" for writers who cannot be asked.
	Session string `json:"session,omitempty"`
	Label   string `json:"label,omitempty"`
	Low     string `json:"low"`
	High    string `json:"high"`
	// Seconds is for how long Low was not decided.
	Seconds   float64 `json:"seconds,omitempty"`
	Connected bool    `json:"connected,omitempty"`
}

// Blocker is a part of what keeps a frontier from going on: the stamps from Low to High may still be written.
type Blocker struct {
	// Session is a hash of the session that may write them. 0: whoever may cannot be asked, as after a failover; a member of the group has to seal them.
	Session   uint64
	Label     string
	Low, High isotone.Timestamp
	// For is for how long the session has not decided Low. Connected is set while it has a connection.
	For       time.Duration
	Connected bool
}
