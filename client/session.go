package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/host/steady"
)

// SessionOptions configures a [Session]. The zero value of every field is its default.
type SessionOptions struct {
	// TTL is how long the session may rely on its locks after the latest request that the leader has answered, and how long the leader waits for the next one before it ends
	// the session: 100 ms to 1 min, in whole milliseconds. 0 means SessionTTLDefault.
	TTL time.Duration
	// Linger is how long the session lives on without a connection. 0 means TTL. With less, locks of a process that dies are free sooner; but a process that lives and
	// only loses its connection may then believe in a lock that somebody else has got. The token of the lock protects stores that check it.
	Linger time.Duration
	// Label tells operators whose session it is, in at most 64 bytes. "" means the name of the machine and the process ID.
	Label string
}

// SessionTTLDefault is the TTL of a session.
const SessionTTLDefault = 3 * time.Second

// Session says that this process is alive, and holds its locks. It keeps itself alive, and goes on over another connection when the leader changes. It ends with [Session.Close], with its client, and when the
// cluster has not heard from it for its TTL. It is safe for concurrent use. See docs/decisions/0041-sessions-and-the-frontier.md for what is promised.
type Session struct {
	client *Client
	window int // of requests under way
	ctx    context.Context
	cancel context.CancelFunc
	woken  chan struct{}
	bound  chan struct{} // closed when the leader has bound it first
	done   chan struct{} // closed when it has ended

	mu     sync.Mutex
	core   *session.Client
	err    error // why it has ended
	closed bool  // Close was called
	conn   net.Conn
	under  []*session.Call // in the order in which they were sent
	locks  map[string]*lock
	// granted are locks whose acquisition ends once the session believes in them.
	granted []*lock
	expiry  *time.Timer
	leader  string // who to ask instead of the node of the connection
	writer  *FrontierWriter
	// confirmed is closed at the next answer; nil: nobody waits for it.
	confirmed chan struct{}
	first     []session.GroupStamp // frontiers when it was bound first
	quota     *isotone.Error       // what refused its latest request to be bound, or for a lock; nil: no quota
}

// sessionWindow is how many requests of a session are under way at most. Those for stamps share one.
const sessionWindow = 4

// NewSession begins a session, and waits until the leader has confirmed it, or ctx is done. After it returns, ctx has no effect.
func (c *Client) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	return c.newSession(ctx, o, sessionWindow, nil)
}

func (c *Client) newSession(ctx context.Context, o SessionOptions, window int, w *FrontierWriter) (*Session, error) {
	if o.TTL == 0 {
		o.TTL = SessionTTLDefault
	}
	if o.Linger == 0 {
		o.Linger = o.TTL
	}
	if o.TTL < session.TTLMin || o.TTL > session.TTLMax || o.TTL%time.Millisecond != 0 || o.Linger < 0 || o.Linger > session.TTLMax || o.Linger%time.Millisecond != 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "session: TTL %v, linger %v: want %v to %v, and at most %v, in whole milliseconds", o.TTL, o.Linger, session.TTLMin, session.TTLMax, session.TTLMax)
	}
	if len(o.Label) > session.LabelMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "session: a label has at most %d bytes, not %d", session.LabelMax, len(o.Label))
	}
	if !c.enter() {
		return nil, ErrClosed
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	s := &Session{
		client: c, window: window, woken: make(chan struct{}, 1), bound: make(chan struct{}), done: make(chan struct{}), locks: map[string]*lock{}, writer: w,
	}
	var groups []string
	if w != nil {
		groups, w.session = []string{w.group}, s
	}
	s.core = session.NewClient(session.ID(binary.BigEndian.Uint64(id[:])|1), o.TTL, o.Linger, groups...)
	if o.Label == "" {
		host, _ := os.Hostname()
		o.Label = fmt.Sprintf("%.50s:%d", host, os.Getpid())
	}
	s.core.SetLabel(o.Label)
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.expiry = time.AfterFunc(o.TTL, s.lapse)
	go func() {
		defer c.work.Done()
		s.run()
	}()
	select {
	case <-s.bound:
		return s, nil
	case <-s.done:
		return nil, s.Err()
	case <-ctx.Done():
		s.abandon(ErrClosed)
		return nil, s.overdue(ctx)
	}
}

// overdue returns the error of a call whose context is done while the session waits to be bound, or for a lock.
func (s *Session) overdue(ctx context.Context) error {
	s.mu.Lock()
	quota := s.quota
	s.mu.Unlock()
	return s.client.overdue(ctx, quota)
}

// sessionNow reads the clock of sessions: it is steady, and runs on while the machine is suspended.
func sessionNow() time.Duration { return time.Duration(steady.Exact()) }

// Done is closed when the session has ended. All its locks are lost then, and their contexts done.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, nil as long as it lives: isotone.ErrSessionExpired, [ErrClosed], or why the cluster refuses it.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// ValidFor returns for how long from now on the session may believe in its locks, without another answer of the leader.
func (s *Session) ValidFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.core.Valid()-sessionNow())
}

// Keep asks the leader whether the session is alive, and waits for the answer, until ctx is done. If it returns nil, ValidFor is no less than the TTL minus the time since the call.
// The session keeps itself alive without it.
func (s *Session) Keep(ctx context.Context) error {
	from := sessionNow()
	s.mu.Lock()
	s.core.Keep()
	s.mu.Unlock()
	s.wake()
	for {
		s.mu.Lock()
		if s.err == nil && s.core.Valid()-s.core.TTL() >= from {
			s.mu.Unlock()
			return nil
		}
		if s.confirmed == nil {
			s.confirmed = make(chan struct{})
		}
		confirmed := s.confirmed
		s.mu.Unlock()
		select {
		case <-confirmed:
		case <-s.done:
			return s.Err()
		case <-ctx.Done():
			return s.client.timeoutError(ctx)
		}
	}
}

// Close ends the session, and frees its locks at once if the leader can be reached within ctx; otherwise the cluster frees them after its TTL.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.core.Close()
	s.happen() // contexts of holders are done before others can have their locks
	s.mu.Unlock()
	s.wake()
	var err error
	select {
	case <-s.done:
	case <-ctx.Done():
		err = s.client.timeoutError(ctx)
	}
	s.abandon(ErrClosed)
	return err
}

// abandon ends the session in this process, whatever the leader knows.
func (s *Session) abandon(err error) {
	s.mu.Lock()
	s.end(err)
	s.mu.Unlock()
}

// end ends the session. The caller holds mu.
func (s *Session) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	for _, l := range s.locks {
		l.lose(err)
	}
	if s.writer != nil {
		s.writer.fail(err)
	}
	s.expiry.Stop()
	s.cancel()
	close(s.done)
}

// wake has the connection look for something to send.
func (s *Session) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run connects to the leader, again and again.
func (s *Session) run() {
	c, addr := s.client, ""
	for failures, moves := 0, 0; s.ctx.Err() == nil; {
		if addr == "" {
			addr = c.nextAddr(failures)
		}
		bound, err := s.serve(addr)
		s.mu.Lock()
		s.core.Disconnected()
		next := s.leader
		s.conn, s.under, s.leader = nil, nil, ""
		s.mu.Unlock()
		if bound {
			failures, moves = 0, 0
		} else {
			failures++
		}
		if err != nil {
			c.trouble.note(addr, err)
			s.refuse(err)
		}
		if addr = ""; next != "" && moves < search.MovesMax {
			addr, moves = next, moves+1
			continue
		}
		moves = 0
		pause := time.NewTimer(backoff(min(failures, 3)))
		select {
		case <-pause.C:
		case <-s.ctx.Done():
		}
		pause.Stop()
	}
	s.abandon(ErrClosed)
}

// refuse ends a session that has not begun if a node refuses the client: nothing else will come of it.
func (s *Session) refuse(err error) {
	var refused refusedError
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil && errors.As(err, &refused) {
		s.end(refused.why)
	}
}

// serve has the session go on over a connection to a node until that ends, and reports whether it was bound.
func (s *Session) serve(addr string) (bound bool, err error) {
	c := s.client
	ctx, cancel := context.WithTimeout(s.ctx, c.opt.DialTimeout)
	defer cancel()
	conn, read, err := c.open(ctx, addr)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if _, err = c.handshake(ctx, conn, read, addr, "HELLO", "3"); err != nil {
		return false, err
	}
	c.report(addr, nil)
	over, closing := context.WithCancel(s.ctx)
	defer context.AfterFunc(over, func() { _ = conn.Close() })()
	s.mu.Lock()
	s.conn = conn
	s.core.Connected()
	s.mu.Unlock()
	var sending sync.WaitGroup
	sending.Go(func() { s.send(over, conn) })
	err = s.receive(conn, read, addr)
	closing()
	sending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.IsBound(), err
}

// send sends what there is to say, until over is done.
func (s *Session) send(over context.Context, conn net.Conn) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var line []byte
	for {
		s.mu.Lock()
		now := sessionNow()
		silent := s.core.IsSilent(now)
		for line = line[:0]; len(s.under) < s.window; {
			k := s.core.Next(now)
			if k == nil {
				break
			}
			s.under = append(s.under, k)
			line = appendCall(line, k)
		}
		rest := s.core.NextAt(now) - now
		s.mu.Unlock()
		if silent {
			_ = conn.Close()
			return
		}
		if len(line) > 0 {
			if _, err := conn.Write(line); err != nil {
				_ = conn.Close()
				return
			}
		}
		timer.Reset(max(rest, time.Millisecond))
		select {
		case <-s.woken:
		case <-timer.C:
		case <-over.Done():
			return
		}
	}
}

// receive handles answers and messages until the connection ends.
func (s *Session) receive(conn net.Conn, read *bufio.Reader, addr string) error {
	for {
		m, v, err := readSession(read)
		refusal, refused := err.(*isotone.Error)
		if err != nil && !refused {
			return err
		}
		more := s.handle(m, v, refusal, addr)
		if refused && refusal.Code == isotone.CodeQuotaExceeded {
			s.client.retried(addr, refusal)
		}
		if !more {
			_ = conn.Close()
			return nil
		}
		s.wake()
	}
}

// handle handles a message, or else the answer to the oldest request, and reports whether the connection is of further use.
func (s *Session) handle(m *session.Message, v answer, refusal *isotone.Error, addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m != nil {
		s.core.Told(*m)
		defer s.settled()
		return s.happen()
	}
	if len(s.under) == 0 {
		return false
	}
	k := s.under[0]
	s.under = s.under[1:]
	if err := settle(k, v, refusal); err != nil {
		s.client.trouble.note(addr, err)
		return false
	}
	if k.Bind != nil || k.Lock != nil {
		if s.quota = nil; refusal != nil && refusal.Code == isotone.CodeQuotaExceeded {
			s.quota = refusal
		}
	}
	s.core.Answered(k, sessionNow())
	if k.Bind != nil && s.core.IsBound() && s.first == nil {
		s.first = append([]session.GroupStamp{}, k.Reply.Frontiers...)
		close(s.bound)
	}
	more := s.happen()
	s.settled()
	return more
}

// happen handles what has happened, and reports whether the connection is of further use. The caller holds mu.
func (s *Session) happen() (more bool) {
	more = true
	for _, e := range s.core.Events() {
		switch e.Kind {
		case session.EventGranted:
			s.lock(e.Name).granted(e.Token)
		case session.EventLocked:
			s.lock(e.Name).refused(isotone.ErrLocked)
		case session.EventRefused:
			switch {
			case e.Group != "":
				s.writer.fail(e.Err)
			case e.Token != 0:
				s.lock(e.Name).wasReleased(e.Err)
			default:
				s.lock(e.Name).refused(e.Err)
			}
		case session.EventReleased:
			s.lock(e.Name).wasReleased(nil)
		case session.EventLost:
			switch {
			case s.closed:
				s.lock(e.Name).lose(ErrClosed)
			case e.Err != nil: // the session has ended
				s.lock(e.Name).lose(e.Err)
			default:
				s.lock(e.Name).lose(isotone.ErrNotHeld)
			}
		case session.EventStamps:
			s.writer.stamps(e)
		case session.EventSeal:
			s.writer.seal(e.Through)
		case session.EventFenced: // FrontierWrite.Check shows it
		case session.EventDisconnect:
			more, s.leader = false, e.Err.Leader
		case session.EventEnded:
			more = false
			if s.closed {
				s.end(ErrClosed)
			}
			s.end(e.Err)
		}
	}
	return more
}

// settled lets those go on who hold a lock, once the session believes in it, and has the belief end in time. The caller holds mu.
func (s *Session) settled() {
	now := sessionNow()
	for _, l := range s.granted {
		l.settle(now)
	}
	s.granted = slices.DeleteFunc(s.granted, func(l *lock) bool { return !l.isGranted })
	if s.err == nil {
		s.expiry.Reset(max(0, s.core.Valid()-now))
	}
	if s.confirmed != nil {
		close(s.confirmed)
		s.confirmed = nil
	}
}

// lapse gives up all locks in which the session does not believe any more (R5).
func (s *Session) lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := sessionNow()
	if rest := s.core.Valid() - now; rest > 0 {
		s.expiry.Reset(rest)
		return
	}
	for _, l := range s.locks {
		if l.held {
			l.leave(isotone.ErrSessionExpired)
			s.core.Release(l.name)
		}
	}
}
