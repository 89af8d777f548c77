package session

import (
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Client is a client's half of a session: what it says to the leader, what it makes of answers and messages, and what it may believe. It connects to nobody and reads no clock:
// all times are those of a steady clock of the client, and may not go back. It is not safe for concurrent use.
//
// After each call, [Client.Events] has what has happened, and [Client.Next] what is to be sent.
type Client struct {
	id          ID
	ttl, linger time.Duration
	label       string
	epoch       uint32
	state       clientState
	// under are requests that are not answered, in the order in which they were sent.
	under []*Call
	// sent is when the latest request was sent, valid until when the client believes in its locks, and pause until when nothing is said but that it is alive, and that it releases locks.
	sent, valid, pause time.Duration
	keeping            bool
	// closed is set if the session is to end, and closing while the leader is being told.
	closed, closing bool
	locks           map[string]*clientLock
	// asks are requests about locks that are to be sent.
	asks   []LockRequest
	groups []*clientGroup
	sealed []GroupStamp
	events []Event
}

// clientState says what a client has of a connection.
type clientState uint8

const (
	clientAlone clientState = iota
	clientConnected
	clientBinding
	clientBound
	clientEnded
)

const (
	// keepFraction: a request is sent every TTL / keepFraction. Without an answer for as long, the connection is of no more use.
	keepFraction = 4
	// overloadPause is for how long nothing is asked again of a leader that has too much to do.
	overloadPause = 20 * time.Millisecond
	// doubtsMax and sealedMax bound what one request says.
	doubtsMax, sealedMax = 16, 16
)

// Call is a request of a [Client]. Count timestamps are asked for with it, of 64 bits with U64. Who sends it sets Reply, or Err, and Range if Count is not 0.
type Call struct {
	Request
	Count uint64
	U64   bool
	Range isotone.Range
	Err   *isotone.Error

	sent time.Duration
}

// Event is something that has happened to a [Client].
type Event struct {
	Kind EventKind
	// Name and Token are those of a lock.
	Name  string
	Token isotone.Timestamp64
	// Group is that of a seal through Through, of stamps Range of which the client may make some itself up to Through, or of stamps from Low to Through that are fenced.
	Group        string
	Low, Through isotone.Timestamp
	Range        isotone.Range
	Err          *isotone.Error
}

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	// EventGranted: the session holds the lock Name with Token, until Valid.
	EventGranted EventKind = iota + 1
	// EventLocked: somebody else holds the lock Name, which was tried.
	EventLocked
	// EventRefused: the request about the lock Name, or for stamps of Group, is refused with Err. With Token, it is the release of that.
	EventRefused
	// EventReleased: the lock Name is released.
	EventReleased
	// EventLost: the session does not hold the lock Name with Token any more, although it has not released it.
	EventLost
	// EventStamps: the stamps of Range may be used for writes in Group.
	EventStamps
	// EventSeal: the stores of Group are to refuse all stamps up to Through.
	EventSeal
	// EventFenced: no stamp of Group from Low to Through may be used any more.
	EventFenced
	// EventDisconnect: the connection is of no more use; Err says why, and may name the leader.
	EventDisconnect
	// EventEnded: the session has ended; Err says why. What it held is lost.
	EventEnded
)

// NewClient returns a session without a connection, whose ID is random. It writes in groups.
func NewClient(id ID, ttl, linger time.Duration, groups ...string) *Client {
	c := &Client{id: id, ttl: ttl, linger: linger, locks: map[string]*clientLock{}}
	for _, name := range groups {
		c.groups = append(c.groups, &clientGroup{name: name})
	}
	return c
}

// SetLabel sets what operators are told of the session, at most LabelMax bytes.
func (c *Client) SetLabel(label string) { c.label = label }

// Valid returns until when the client believes in the locks that it holds. What it does under a lock has to end before (R5).
func (c *Client) Valid() time.Duration { return c.valid }

// TTL returns the TTL of the session.
func (c *Client) TTL() time.Duration { return c.ttl }

// IsEnded reports whether the session has ended.
func (c *Client) IsEnded() bool { return c.state == clientEnded }

// IsBound reports whether the leader has bound the session over the present connection.
func (c *Client) IsBound() bool { return c.state == clientBound }

// Events returns what has happened since the call before.
func (c *Client) Events() []Event {
	list := c.events
	c.events = nil
	return list
}

func (c *Client) happened(e Event) { c.events = append(c.events, e) }

// Connected tells of a connection, over which the session binds next.
func (c *Client) Connected() {
	if c.state == clientAlone {
		c.state = clientConnected
		c.epoch++
	}
}

// Disconnected tells that the connection has ended. No answer or message of it may follow.
func (c *Client) Disconnected() {
	if c.state == clientEnded {
		return
	}
	c.state, c.under, c.asks, c.sealed, c.pause, c.closing = clientAlone, nil, nil, nil, 0, false
	for _, g := range c.groups {
		g.disconnected()
	}
}

// Close has the session end at the client's request. It does not believe in any lock any more when Close returns: the leader frees them before it answers.
func (c *Client) Close() {
	if c.closed || c.state == clientEnded {
		return
	}
	if c.closed = true; !mutant.On(mutant.BelieveUntilClosed) {
		c.loseAll(isotone.ErrSessionExpired)
	}
}

// Keep has something said at once, whose answer makes the session valid for longer.
func (c *Client) Keep() { c.keeping = true }

// Next returns the next request to send, nil if there is none now. Any number may be under way.
func (c *Client) Next(now time.Duration) *Call {
	k := &Call{sent: now}
	switch c.state {
	case clientConnected:
		c.state = clientBinding
		k.Bind = &Bind{ID: c.id, Epoch: c.epoch, TTL: c.ttl, Linger: c.linger, Label: c.label}
		for _, g := range c.groups {
			k.Bind.Reports = append(k.Bind.Reports, g.report())
		}
	case clientBound:
		if !c.fill(k, now) {
			return nil
		}
	default:
		return nil
	}
	c.under, c.sent = append(c.under, k), now
	return k
}

// fill adds to a request what is to be said, and reports whether there is anything. One about a lock says nothing else.
func (c *Client) fill(k *Call, now time.Duration) (some bool) {
	switch {
	case c.closing || c.closed && now < c.pause:
		return false
	case c.closed && c.isTaking():
		return false
	case c.closed && c.sayAll(k): // what is decided leaves no hole
		return true
	case c.closed:
		k.Close, c.closing = true, true
		return true
	}
	if at := slices.IndexFunc(c.asks, func(q LockRequest) bool { return now >= c.pause || q.Op == LockRelease }); at >= 0 {
		q := c.asks[at]
		c.asks, k.Lock = slices.Delete(c.asks, at, at+1), &q
		return true
	}
	some = c.keeping || now-c.sent >= c.ttl/keepFraction
	if c.keeping = false; now < c.pause {
		return some
	}
	some = c.take(k) || some
	some = c.sayAll(k) || some
	if n := min(len(c.sealed), sealedMax); n > 0 {
		some = true
		k.Sealed, c.sealed = c.sealed[:n:n], c.sealed[n:]
	}
	return some
}

// sayAll adds to a request what is decided and doubted, and reports whether anything of that is new.
func (c *Client) sayAll(k *Call) (some bool) {
	for _, g := range c.groups {
		some = g.say(k) || some
	}
	return some
}

// NextAt returns when Next has something to say, or the connection is silent, if nothing happens before.
func (c *Client) NextAt(now time.Duration) time.Duration {
	at := c.sent + c.ttl/keepFraction
	if len(c.under) > 0 {
		at = min(at, c.under[0].sent+c.ttl/keepFraction)
	}
	if c.pause > now {
		at = min(at, c.pause)
	}
	return at
}

// IsSilent reports whether the connection is of no more use, as nothing has come for long.
func (c *Client) IsSilent(now time.Duration) bool {
	return len(c.under) > 0 && now-c.under[0].sent > c.ttl/keepFraction
}

// Answered tells of the answer to a request over the present connection.
func (c *Client) Answered(k *Call, now time.Duration) {
	at := slices.Index(c.under, k)
	if at < 0 {
		return
	}
	c.under = slices.Delete(c.under, at, at+1)
	if k.Err != nil {
		c.refused(k, now)
		return
	}
	switch k.Reply.Outcome {
	case Expired:
		c.end(isotone.ErrSessionExpired)
	case Unbound:
		c.happened(Event{Kind: EventDisconnect, Err: isotone.ErrNotBound})
	case Locked:
		c.alive(k, now)
		if l := c.lock(k.Lock.Name); l.wants && l.token == 0 && l.try {
			l.wants = false
			c.happened(Event{Kind: EventLocked, Name: l.name})
		}
		c.forget(c.lock(k.Lock.Name))
	case Alive:
		c.alive(k, now)
	}
}

// alive notes that the session was alive when the request came (R3).
func (c *Client) alive(k *Call, now time.Duration) {
	if k.Bind != nil {
		c.state = clientBound
		c.reconcile(k.Reply.Holds)
	}
	c.valid = max(c.valid, mutant.Pick(mutant.ValidFromAnswer, now, k.sent)+c.ttl)
	for _, d := range k.Doubts {
		c.Done(d.Group, d.Stamp)
	}
	if k.Group != "" {
		c.taken(k)
	}
	if k.Lock != nil && k.Reply.Outcome == Alive && len(k.Reply.Holds) > 0 {
		c.granted(c.lock(k.Lock.Name), k.Reply.Holds[0].Token)
	}
}

// refused handles a request that was answered with an error.
func (c *Client) refused(k *Call, now time.Duration) {
	canWait := k.Err.Code == isotone.CodeOverloaded || k.Err.Code == isotone.CodeQuotaExceeded
	isFinal := k.Err.Code == isotone.CodeInvalidArgument || k.Err.Code == isotone.CodeForbidden || k.Err.Code == isotone.CodeUnauthorized
	switch {
	case k.Bind != nil && isFinal:
		c.end(k.Err)
	case k.Bind != nil || !canWait && !isFinal:
		c.happened(Event{Kind: EventDisconnect, Err: k.Err})
	default:
		if c.closing = c.closing && !k.Close; canWait || k.Close {
			c.pause = now + max(overloadPause, k.Err.RetryAfter)
		}
		c.refusedPart(k, canWait)
	}
}

// refusedPart handles what was asked for besides.
func (c *Client) refusedPart(k *Call, again bool) {
	if g := c.group(k.Group); g != nil {
		g.taking = 0
		if again {
			g.want += k.Count
		} else {
			c.happened(Event{Kind: EventRefused, Group: g.name, Err: k.Err})
		}
	}
	if again { // it may not have been heard
		for _, l := range k.Lows {
			c.group(l.Group).said = isotone.Timestamp{}
		}
		for _, d := range k.Doubts {
			c.group(d.Group).told = 0
		}
		c.sealed = append(k.Sealed, c.sealed...)
	}
	if k.Lock != nil {
		c.refusedLock(k, again)
	}
}

// Told tells of a message over the present connection.
func (c *Client) Told(m Message) {
	if c.state != clientBound && !mutant.On(mutant.HeardBeforeBound) { // the answer to Bind will show as much
		return
	}
	switch m.Kind {
	case MessageSeal:
		c.happened(Event{Kind: EventSeal, Group: m.Group, Through: m.Through})
	case MessageFenced:
		if g := c.group(m.Group); g != nil {
			g.fence(m.Low, m.Through)
			c.happened(Event{Kind: EventFenced, Group: m.Group, Low: m.Low, Through: m.Through})
		}
	case MessageExpired:
		c.end(isotone.ErrSessionExpired)
	case MessageSuperseded:
		c.happened(Event{Kind: EventDisconnect, Err: isotone.ErrNotBound})
	case MessageQueued:
		c.lock(m.Name).ticket = m.Ticket
	case MessageGranted:
		c.granted(c.lock(m.Name), m.Token)
	case MessageReleased:
		c.released(c.lock(m.Name), m.Token)
	}
}

// end ends the session: it believes in nothing any more.
func (c *Client) end(err *isotone.Error) {
	if c.state == clientEnded {
		return
	}
	c.state, c.under, c.valid = clientEnded, nil, 0
	c.loseAll(err)
	c.happened(Event{Kind: EventEnded, Err: err})
}

// loseAll gives all locks up.
func (c *Client) loseAll(err *isotone.Error) {
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		if l := c.locks[name]; l.token != 0 {
			c.happened(Event{Kind: EventLost, Name: name, Token: l.token, Err: err})
		}
	}
	clear(c.locks)
}

// Sealed tells that all stores of a group refuse stamps up to through.
func (c *Client) Sealed(group string, through isotone.Timestamp) {
	if c.state == clientBound { // a leader asks again
		c.sealed = append(c.sealed, GroupStamp{Group: group, Stamp: through})
	}
}
