package httpapi

import (
	"encoding/json"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// ContentTypeEvents is that of a stream of server-sent events.
const ContentTypeEvents = "text/event-stream"

// SessionAnswer answers a request that keeps a session alive.
type SessionAnswer struct {
	Session string `json:"session"`
	// ValidFor is in milliseconds, from when the client sent the request.
	ValidFor int64      `json:"validFor"`
	Holds    []HeldLock `json:"holds"`
	// Frontiers are those of the groups that the request names, in hexadecimal digits.
	Frontiers map[string]string `json:"frontiers,omitempty"`
	SessionNews
}

// SessionNews is what the leader has to say to a writer.
type SessionNews struct {
	Seals  []GroupSeal  `json:"seals,omitempty"`
	Fenced []GroupFence `json:"fenced,omitempty"`
}

// GroupSeal asks to have all stores of a group refuse what is at or below Through.
type GroupSeal struct {
	Group   string `json:"group"`
	Through string `json:"through"`
}

// GroupFence tells that the session may not write from Low to Through in a group any more.
type GroupFence struct {
	Group   string `json:"group"`
	Low     string `json:"low"`
	Through string `json:"through"`
}

// HeldLock is a lock that a session holds. Token and Token64 are one token in two forms, whose orders are the same.
type HeldLock struct {
	Name    string `json:"name"`
	Token   string `json:"token"`
	Token64 string `json:"token64"`
	// ValidFor is as in [SessionAnswer]; 0 in a list of holds.
	ValidFor int64 `json:"validFor,omitempty"`
}

// HeldLocks describes holds.
func HeldLocks(holds []session.Hold) []HeldLock {
	list := make([]HeldLock, 0, len(holds))
	for _, h := range holds {
		list = append(list, HeldLock{Name: h.Name, Token: h.Token.Timestamp().String(), Token64: h.Token.String()})
	}
	return list
}

// LockHolder is who holds a lock. Session is a hash of the ID of the session, as that is a secret, and Label what its client calls it.
type LockHolder struct {
	Name    string `json:"name"`
	Token   string `json:"token"`
	Token64 string `json:"token64"`
	Value   string `json:"value"`
	Session string `json:"session"`
	Label   string `json:"label,omitempty"`
}

// HolderOf describes a holder.
func HolderOf(h *front.Holder) LockHolder {
	return LockHolder{h.Name, h.Token.Timestamp().String(), h.Token.String(), h.Value, front.SessionHash(h.Session), h.Label}
}

// LockList answers a list of locks.
type LockList struct {
	Locks []LockHolder `json:"locks"`
}

// LockRefusal goes with an error of code locked.
type LockRefusal struct {
	// Holder is who held the lock just after it was refused, nil for nobody.
	Holder *LockHolder `json:"holder,omitempty"`
	// Ticket is the place in the queue that the request had, and that the next one can have back; "" if it had none.
	Ticket string `json:"ticket,omitempty"`
}

// RefusalBody returns the body of an error of code locked.
func RefusalBody(message string, r LockRefusal) []byte {
	var b struct {
		Error struct {
			Code    isotone.Code `json:"code"`
			Message string       `json:"message"`
		} `json:"error"`
		LockRefusal
	}
	b.Error.Code, b.Error.Message, b.LockRefusal = isotone.CodeLocked, message, r
	return JSONBody(b)
}

// StampsAnswer answers a request for stamps of a group. Bound, of one that asks for stamps ahead, is the largest that the session may make itself.
type StampsAnswer struct {
	Group string `json:"group"`
	First string `json:"first"`
	Last  string `json:"last"`
	// First64 and Last64 are the same in 64 bits, if that was asked for.
	First64 string `json:"first64,omitempty"`
	Last64  string `json:"last64,omitempty"`
	Bound   string `json:"bound,omitempty"`
}

// StampsOf describes a range of stamps.
func StampsOf(group string, r isotone.Range, u64 bool) StampsAnswer {
	a := StampsAnswer{Group: group, First: r.First.String()}
	if u64 {
		first := isotone.Timestamp64From(r.First)
		last := first + isotone.Timestamp64(r.Count-1)
		a.Last, a.First64, a.Last64 = last.Timestamp().String(), first.String(), last.String()
		return a
	}
	a.Last = isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + r.Count - 1}.String()
	return a
}

// FrontierAnswer tells the frontier of a group.
type FrontierAnswer struct {
	Group    string `json:"group"`
	Frontier string `json:"frontier"`
}

// JSONBody encodes an answer, which has nothing that JSON cannot express.
func JSONBody(answer any) []byte {
	body, err := json.Marshal(answer)
	if err != nil {
		panic("httpapi: an answer does not encode: " + err.Error())
	}
	return body
}

// SessionEnded answers the end of a session, LockReleased the release of a lock.
type (
	SessionEnded struct {
		Session string `json:"session"`
	}
	LockReleased struct {
		Name string `json:"name"`
	}
)

// LockFree is the event that nobody holds a lock.
type LockFree struct {
	Name string `json:"name"`
}
