// Package redislock keeps the locks of clients of Redis libraries on the leader: each has a value, by which its holder is known, and most have a time after which they are free
// unless they are refreshed.
//
// All of them are holds of one session, [SessionID], which the leader's node binds and keeps alive. What a hold cannot have, this package adds. When a lock was refreshed last is
// known to the leader only. How long it is held without a refresh is in the log, in the value of its hold, so the leader of a later term gives each lock its full time again: it is
// held for longer than asked for, never for less. What is in the log of a hold is fixed, so a longer time, or another value, is recorded by a second hold, an amendment. It is there
// before the client is told, and it goes with the lock.
//
// A lock is free 11/9 of its time after it was refreshed, as its client may count the time by a clock that is slow while that of the leader is fast (R4 of decision 41). For its
// holder it has ended once its time is over.
//
// A [Keeper] knows no wall clock, no network and no Redis protocol. It is not safe for concurrent use.
package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

const (
	// SessionID is the session that has all of these locks. Clients cannot bind it.
	SessionID = session.Reserved
	// ValueMax is the largest length of a value, in bytes: that of a hold also has the time.
	ValueMax = 112
	// TTLMax is the longest time for which a lock is held without a refresh, unless it is held for ever.
	TTLMax = 24 * time.Hour

	// ReservedPrefix begins the names of holds that amend another one. Its token follows, and what makes the name unique.
	ReservedPrefix = "isotone:redis:"
)

// Op is what is to be done about a lock.
type Op uint8

const (
	// Read tells about a lock.
	Read Op = iota + 1
	// Obtain takes a lock that is free.
	Obtain
	// ObtainAgain also gives a lock another value and time if the first Prefix bytes of both values are the same.
	ObtainAgain
	// ObtainOrRefresh also refreshes the lock if its value is Value.
	ObtainOrRefresh
	// Set takes a lock even if another client holds it. Others may get it in between; then it fails.
	Set
	// Delete frees a lock whose value is Value.
	Delete
	// Refresh begins the time of a lock whose value is Value anew, with TTL. A TTL of 0 or less frees it.
	Refresh
	// Extend is Refresh with what is left of its time besides. A lock that is held for ever is left as it is.
	Extend
	// Break ends the lock with the token Of at an operator's request: its holder does not have it any more, and others may get it once the holder cannot believe in it, or
	// at once if it is held for ever.
	Break
)

// Request is a request of a client. All effects are those of one instant between the request and its answer.
type Request struct {
	Op   Op
	Name string
	// Value is that of the lock: the one that it gets, or the one that it must have unless Any is set.
	Value string
	Any   bool
	// Prefix is for ObtainAgain, Of for Break.
	Prefix int
	Of     isotone.Timestamp64
	// TTL is for how long the lock is held without a refresh, in whole milliseconds. If an operation takes the lock, 0 means for ever.
	TTL time.Duration
	Reply
}

// Reply answers a [Request].
type Reply struct {
	// Done: the lock was taken, freed or refreshed; of Read: it has the Value.
	Done bool
	// Held: somebody held the lock before, with the Value and the Token.
	Held  bool
	Value string
	Token isotone.Timestamp64
	// Left is what is left of its time, if that has an end; of Break, until others may have it.
	Left    time.Duration
	Forever bool
}

// takes reports whether the request may take a lock.
func (r *Request) takes() bool { return r.Op >= Obtain && r.Op <= Set }

// Check returns why the request is not valid, or nil.
func (r *Request) Check() error {
	switch {
	case r.Name == "" || len(r.Name) > oracle.LockNameMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the key of a lock has 1 to %d bytes, and this one has %d; in a database other than 0, its number counts, too", oracle.LockNameMax, len(r.Name))
	case IsReserved(r.Name):
		return isotone.Errorf(isotone.CodeInvalidArgument, "the key of a lock does not begin with %q", ReservedPrefix)
	case r.takes() && (r.Value == "" || len(r.Value) > ValueMax):
		return isotone.Errorf(isotone.CodeInvalidArgument, "the value of a lock has 1 to %d bytes, and this one has %d", ValueMax, len(r.Value))
	case r.takes() && r.TTL < 0 || r.TTL > TTLMax || r.TTL%time.Millisecond != 0:
		return errTTL
	}
	return nil
}

var (
	errTTL     = isotone.Errorf(isotone.CodeInvalidArgument, "a lock is held for at most %v without a refresh, in whole milliseconds, or for ever", TTLMax)
	errSession = isotone.Errorf(isotone.CodeLocked, "a session holds this lock; only LOCK RELEASE on its connection frees it")
	errTooLong = isotone.Errorf(isotone.CodeDeadlineExceeded, "the change of the lock was not committed in time, and may still be; look, or try again")
)

// IsReserved reports whether a lock with that name can be an amendment only.
func IsReserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }

// ValueOf returns what others are shown as the value of a hold, and false if they are not to see the hold.
func ValueOf(h oracle.Hold) (value string, shown bool) {
	if session.ID(h.Session) != SessionID {
		return h.Value, true
	}
	_, value = decode(h.Value)
	return value, !IsReserved(h.Name)
}

// encode returns the value of a hold: the time in milliseconds, a space, and the value of the lock.
func encode(ttl time.Duration, value string) string {
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + value
}

// decode is the inverse of encode.
func decode(text string) (ttl time.Duration, value string) {
	ms, value, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return time.Duration(n) * time.Millisecond, value
}

// amendmentOf returns the token of the hold that the hold of that name amends.
func amendmentOf(name string) (token isotone.Timestamp64, ok bool) {
	rest, ok := strings.CutPrefix(name, ReservedPrefix)
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(digits, 10, 64)
	return isotone.Timestamp64(n), err == nil
}
