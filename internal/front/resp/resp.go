// Package resp is the front that speaks the Redis protocol (RESP2 and RESP3) in the
// event loop, so that Redis clients, redis-cli and redis-benchmark work as they are.
//
// It owns the parser, the few commands, and the spelling of answers and errors; see
// docs/resp.md for what clients see. It knows nothing of Raft, of how timestamps come
// to be, or of other protocols: every request goes through the interfaces of
// internal/front. All of it runs
// on the goroutine of one [loop.Loop], without locks.
//
// The hot path is TS, pipelined. All TS commands with the same read mode that have arrived
// on a connection become one batch with one count, their sum; the resulting range is split
// in the order of the commands. So thirty-two commands cost the node no more than one.
// Until the batch is answered the connection is paused, so that answers keep the order of
// commands.
package resp

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/snowflake"
)

// protocol is the protocol name for Observe.
const protocol = "resp"

// codeOK is the code of a success for Observe.
const codeOK = "ok"

var (
	// ErrStopped ends connections after [Front.Stop].
	ErrStopped = errors.New("the server is shutting down")
	// errQuit ends a connection whose client has sent QUIT.
	errQuit = errors.New("the client has quit")
)

// Config configures a [Front]. Only Backend is required.
type Config struct {
	// Backend answers TS. It must call Done on the loop's goroutine, within Submit or
	// later.
	Backend front.Backend
	// IDs answers SNOWFLAKE; nil means that there are no ids here.
	IDs front.IDs
	// Clock answers INTERVAL; nil stands for front.NoClock.
	Clock front.Clock
	// Lessor answers WORKER; nil means that worker ids are not leased here.
	Lessor front.Lessor
	// Sessions answers SESSION, LOCK and FRONTIER; nil means that there are no sessions here.
	Sessions front.Sessions
	// RedisLocks and Scripts answer what libraries for locks in Redis send; nil: their commands are unknown.
	RedisLocks front.RedisLocks
	Scripts    *Scripts
	// Mode applies to requests that name none. isotone.ReadDefault leaves the choice
	// to the backend.
	Mode isotone.ReadMode
	// Observe, if not nil, is called on the loop's goroutine for requests that were
	// answered together, with their number. The protocol is "resp"; the code is "ok" or an
	// isotone.Code. Wall is measured on the loop's clock, from the turn that read the
	// requests to the turn that answered. Only TS, SNOWFLAKE, INTERVAL, WORKER,
	// SESSION, LOCK and FRONTIER are observed.
	Observe func(protocol, code string, requests int, wall time.Duration)
	// Post runs a function on the loop's goroutine, from any other. Without it only credentials
	// that need no check are answered, and INTERVAL WAIT and LOCK must have nothing to wait for.
	Post func(func())
	// Trace, if not nil, traces commands that were answered together, from when they were read
	// until their answers are in the output. Only TS and SNOWFLAKE are traced.
	Trace *trace.Exporter
	// SlotsOfTimelines presents each owner of timelines as the primary of their hash slots; otherwise the leader has all slots.
	SlotsOfTimelines bool
	// Version is shown by INFO as isotone_version.
	Version string
}

// Front is the Redis protocol on the connections of one loop. Make it with [New]. All
// methods belong to the loop's goroutine.
type Front struct {
	cfg      Config
	commands *catalog
	conns    []*conn      // all open ones, in no order
	openNow  atomic.Int64 // how many there are, for other goroutines
	opened   uint64
	stopped  bool
	request  request // being parsed, one command at a time
	reply    reply   // being written
	ids      [1]snowflake.ID
	stamper  *front.Stamper
	// pastWaits counts the connections that wait until a timestamp is past. after is
	// time.AfterFunc but in tests.
	pastWaits int
	after     func(time.Duration, func()) *time.Timer
}

// New returns a front without connections.
func New(cfg Config) *Front {
	if cfg.Clock == nil {
		cfg.Clock = front.NoClock{}
	}
	return &Front{cfg: cfg, commands: newCatalog(cfg.RedisLocks != nil), stamper: front.NewStamper(cfg.Clock), after: time.AfterFunc}
}

// Open returns the handler for c, or nil, which closes c, after Stop. The listener's
// Limits.UnreadMax must be at least [UnreadMin]; its default is.
func (f *Front) Open(c *loop.Conn) loop.Handler {
	if f.stopped {
		return nil
	}
	return f.open(c, access.Of(c.Tag()))
}

func (f *Front) open(w wire, s *access.Session) *conn {
	f.opened++
	c := &conn{front: f, wire: w, index: len(f.conns), id: f.opened, opened: w.Now(), memo: plainMemo, session: s}
	c.runs = c.oneRun[:0]
	c.batch.Done = c.done
	f.conns = append(f.conns, c)
	f.openNow.Store(int64(len(f.conns)))
	return c
}

// errStopping answers commands that wait for more than an answer of the backend.
var errStopping = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")

// Stop closes idle connections, and each of the others when its batch is answered. Further
// commands are not answered. Open returns nil from now on.
func (f *Front) Stop() {
	f.stopped = true
	for _, c := range slices.Clone(f.conns) { // one that is closed may leave the list
		switch {
		case c.awaited != nil:
			c.endPastWait(errStopping)
		case c.awaiting() != nil && c.awaiting().mayBeLong():
			c.endSessionWait(errStopping)
		case !c.waiting:
			c.wire.Close(ErrStopped)
		}
	}
}

// Conns returns how many connections are open. Any goroutine may call it.
func (f *Front) Conns() int { return int(f.openNow.Load()) }

// CommandNames returns the names of all commands in capitals, sorted. A line that begins
// with one of them, in any case, is an inline command. Those of REDIS_LOCKS are not among them: GET begins requests of HTTP, too.
func CommandNames() []string {
	var names []string
	for _, c := range newCatalog(false).list {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

// hasRedisLocks reports whether the commands of REDIS_LOCKS are known.
func (f *Front) hasRedisLocks() bool { return f.cfg.RedisLocks != nil }

func (f *Front) remove(c *conn) {
	last := len(f.conns) - 1
	f.conns[c.index] = f.conns[last]
	f.conns[c.index].index = c.index
	f.conns[last] = nil
	f.conns = f.conns[:last]
	f.openNow.Store(int64(last))
}

func (f *Front) observe(code string, requests int, wall time.Duration) {
	if f.cfg.Observe != nil {
		f.cfg.Observe(protocol, code, requests, wall)
	}
}
