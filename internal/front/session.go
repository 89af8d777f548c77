package front

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Sessions has the leader's sessions of clients, with their locks and frontiers, for the fronts in one loop. It belongs to that loop's goroutine. A node that does not
// lead answers with an error that names the leader.
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
	// Wait bounds the wait, from when the core has it. Then it is answered with what there is.
	Wait time.Duration

	Frontier isotone.Timestamp
	// Holders has the holder of the lock, or those of all locks by name, as far as the leader knows: one that is deposed, and does not know it yet, may not know the latest.
	Holders []Holder
	Err     error
	Done    func(*SessionWatch)
}

// Holder describes who holds a lock.
type Holder struct {
	Name  string
	Token isotone.Timestamp64
	// Value is what the holder tells others.
	Value string
	// Session is a hash of the holder's session, as its ID is a secret.
	Session uint64
}
