//go:build linux && !portable

package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// eventsMax is how many ready sockets one turn takes; the rest is in the next.
	eventsMax = 1024
	// acceptsMax is how many connections one turn accepts: few enough that requests do not
	// have to wait for them, who may be many at once.
	acceptsMax = 64
)

// poller watches sockets with epoll. Calls that cannot block are made without telling
// the scheduler.
type poller struct {
	epoll, event int
	events       []unix.EpollEvent
	slots        []slot // by file descriptor
	paused       []*listener
	resumeAt     time.Duration

	keepsProcessor bool

	state   atomic.Int32 // awake, asleep, waiting or woken
	closing sync.Mutex   // held while event is written to, and while it is closed
	closed  bool
}

const (
	awake   = iota
	asleep  // or about to be: to wake it, event must be written to
	woken   // and has not noticed yet
	waiting // as asleep, but in waitForWake: state itself is waited for
)

// slot is what a file descriptor stands for: a connection, a listener, or nothing.
type slot struct {
	conn     *Conn
	listener *listener
	// generation is part of every event. What is reported for a descriptor that was
	// closed earlier in the same turn must not reach the one that got its number since.
	generation int32
}

type socket struct {
	fd     int
	events uint32 // watched for
}

type listening struct {
	fd int
	ln net.Listener // holds a descriptor of its own, and the name of a Unix socket
}

func (p *poller) open() error {
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("loop: epoll: %w", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return errors.Join(fmt.Errorf("loop: eventfd: %w", err), unix.Close(p.epoll))
	}
	p.events = make([]unix.EpollEvent, eventsMax)
	// Edge-triggered: every write is an event of its own, and nobody has to read.
	if err := p.control(unix.EPOLL_CTL_ADD, p.event, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return errors.Join(err, p.close())
	}
	return nil
}

// slot returns the place of fd.
func (p *poller) slot(fd int) *slot {
	for len(p.slots) <= fd {
		p.slots = append(p.slots, slot{})
	}
	return &p.slots[fd]
}

func (p *poller) control(op, fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: p.slot(fd).generation}
	if err := unix.EpollCtl(p.epoll, op, fd, &ev); err != nil {
		return fmt.Errorf("loop: epoll: %w", err)
	}
	return nil
}

// enter watches fd on behalf of a connection or a listener.
func (p *poller) enter(fd int, c *Conn, s *listener) error {
	place := p.slot(fd)
	*place = slot{conn: c, listener: s, generation: place.generation + 1}
	if err := p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
		p.leave(fd)
		return err
	}
	return nil
}

func (p *poller) leave(fd int) { p.slots[fd].conn, p.slots[fd].listener = nil, nil }

// duplicate returns a descriptor of our own for a connection or listener of package
// net, which keeps its.
func duplicate(v any) (int, error) {
	sc, ok := v.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("loop: a %T has no file descriptor", v)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("loop: %w", err)
	}
	fd := -1
	controlErr := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	if controlErr != nil {
		err = controlErr
	}
	if err != nil {
		return -1, fmt.Errorf("loop: %w", err)
	}
	return fd, nil
}

// A connection without IdleTimeout, such as one with a silent stream, ends two minutes after its other side has vanished: that is asked
// after so many seconds of silence, and again so often.
const (
	keepAliveIdle  = 60
	keepAliveEvery = 15
	keepAliveCount = 4
)

func (p *poller) listen(s *listener, ln net.Listener) error {
	fd, err := duplicate(ln)
	if err != nil {
		return err
	}
	s.fd, s.ln = fd, ln
	for _, o := range [...]struct{ level, name, value int }{ // the accepted inherit them
		{unix.SOL_SOCKET, unix.SO_SNDBUF, s.limits.UnsentMax},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveEvery},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
	} {
		_ = unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
	if err := p.enter(fd, nil, s); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

func (p *poller) unlisten(s *listener) {
	p.leave(s.fd)
	// Without this it would be watched on: ln still holds the same socket.
	_ = p.control(unix.EPOLL_CTL_DEL, s.fd, 0)
	_ = unix.Close(s.fd)
	_ = s.ln.Close()
}

func (p *poller) attach(c *Conn, nc net.Conn) error {
	fd, err := duplicate(nc)
	if err != nil {
		return err
	}
	if err := p.take(c, fd); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	_ = nc.Close()
	return nil
}

// take watches a new connection.
func (p *poller) take(c *Conn, fd int) error {
	c.fd, c.socket.events = fd, unix.EPOLLIN
	return p.enter(fd, c, nil)
}

func (p *poller) release(c *Conn) (nc net.Conn, unread, unsent []byte, err error) {
	file := os.NewFile(uintptr(c.fd), "")
	nc, err = net.FileConn(file) // a duplicate
	if err != nil {
		err = fmt.Errorf("loop: %w", err)
	}
	p.leave(c.fd)
	_ = p.control(unix.EPOLL_CTL_DEL, c.fd, 0)
	_ = file.Close()
	c.fd = -1
	return nc, nil, nil, err
}

func (p *poller) drop(c *Conn) {
	if c.fd >= 0 {
		p.leave(c.fd)
		_ = unix.Close(c.fd) // which ends the watching, too
		c.fd = -1
	}
}

// shut ends the output of c, and reports whether it is worth waiting for the other side
// to end its own.
func (p *poller) shut(c *Conn) bool { return unix.Shutdown(c.fd, unix.SHUT_WR) == nil }

func (p *poller) watch(c *Conn, on bool)      { p.change(c, unix.EPOLLIN, on) }
func (p *poller) watchWrite(c *Conn, on bool) { p.change(c, unix.EPOLLOUT, on) }

func (p *poller) change(c *Conn, bit uint32, on bool) {
	events := c.socket.events &^ bit
	if on {
		events |= bit
	}
	if events != c.socket.events {
		c.socket.events = events
		_ = p.control(unix.EPOLL_CTL_MOD, c.fd, events)
	}
}

func (p *poller) read(c *Conn, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch {
		case e == 0 && n == 0:
			return 0, io.EOF
		case e == 0:
			return int(n), nil
		case e == unix.EINTR:
		case e == unix.EAGAIN:
			return 0, errAgain
		default:
			return 0, e
		}
	}
}

func (p *poller) write(c *Conn, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errAgain
		default:
			return 0, e
		}
	}
}

// wake makes a system call only if the loop sleeps, and only the first of many does.
func (p *poller) wake() {
	switch p.state.Swap(woken) {
	case awake, woken:
		return
	case waiting:
		_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&p.state)), futexWake|futexPrivate, 1, 0, 0, 0)
		return
	}
	p.closing.Lock()
	defer p.closing.Unlock()
	if one := [8]byte{1}; !p.closed {
		_, _ = unix.Write(p.event, one[:])
	}
}

func (p *poller) wait(l *Loop, d time.Duration) error {
	if len(p.paused) > 0 {
		d = min(d, acceptPause)
	}
	n, err := p.sleep(d)
	if err != nil {
		return fmt.Errorf("loop: epoll: %w", err)
	}
	l.now = l.clock()
	if len(p.paused) > 0 && l.now >= p.resumeAt {
		p.unpause()
	}
	for i := range n {
		ev := &p.events[i]
		if int(ev.Fd) == p.event {
			continue
		}
		if s := p.slots[ev.Fd]; s.generation == ev.Pad {
			p.handle(l, s, ev.Events)
		}
		if l.closed {
			return nil
		}
	}
	return nil
}

// sleep waits for events, and returns how many there are.
func (p *poller) sleep(d time.Duration) (int, error) {
	if d > 0 && !p.state.CompareAndSwap(awake, asleep) {
		d = 0
	}
	n, err := p.epollWait(int((d + time.Millisecond - 1) / time.Millisecond))
	p.state.Store(awake)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}

// futex(2)
const (
	futexWait    = 0
	futexWake    = 1
	futexPrivate = 128
)

// waitForWake waits for wake, and nothing else.
func (p *poller) waitForWake(d time.Duration) bool {
	if !p.state.CompareAndSwap(awake, waiting) {
		return true
	}
	// Told to keep its processor, it keeps a collector of garbage waiting, too, who does not
	// interrupt this call; so d is to be short.
	call := unix.Syscall6
	if p.keepsProcessor {
		call = unix.RawSyscall6
	}
	timeout := unix.NsecToTimespec(int64(d))
	_, _, _ = call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&p.state)), futexWait|futexPrivate, waiting, uintptr(unsafe.Pointer(&timeout)), 0, 0)
	p.state.Store(awake)
	return true
}

// epollWait waits for events for so many milliseconds. Told to keep its processor it does
// not tell the scheduler. A collection of garbage, or whatever else wants to stop the
// world, then interrupts the system call with a signal, and tries again if that comes a
// moment too early; epoll_wait is not restarted after one.
func (p *poller) epollWait(ms int) (int, error) {
	if !p.keepsProcessor {
		return unix.EpollWait(p.epoll, p.events, ms)
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(unsafe.SliceData(p.events))),
		uintptr(len(p.events)), uintptr(ms), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

func (p *poller) keepProcessor() { p.keepsProcessor = true }

func (p *poller) handle(l *Loop, s slot, events uint32) {
	if s.listener != nil {
		p.accept(l, s.listener)
		return
	}
	c := s.conn
	if c == nil {
		return
	}
	if events&unix.EPOLLOUT != 0 {
		l.write(c)
	}
	if c.state == stateGone || events&^unix.EPOLLOUT == 0 {
		return
	}
	if c.socket.events&unix.EPOLLIN == 0 {
		// Hanging up is reported whether it is watched for or not, again and again. No
		// answer can reach the other side any more.
		if events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			l.end(c, p.failure(c))
		}
		return
	}
	l.readable(c)
}

// failure says why c hung up.
func (p *poller) failure(c *Conn) error {
	if e, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
		return syscall.Errno(e)
	}
	return io.EOF
}

// accept takes new connections.
func (p *poller) accept(l *Loop, s *listener) {
	for range acceptsMax {
		if s.stopped {
			return
		}
		fd, from, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			c := &Conn{remote: addrOf(from)}
			if err := p.take(c, fd); err != nil {
				_ = unix.Close(fd)
				p.pause(l, s, err)
				return
			}
			l.accepted(s, c)
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED:
		default:
			p.pause(l, s, err)
			return
		}
	}
}

// addrOf returns an address of TCP; the zero AddrPort for others.
func addrOf(from unix.Sockaddr) netip.AddrPort {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// pause leaves s alone for a while.
func (p *poller) pause(l *Loop, s *listener, err error) {
	l.cannotAccept(s, err)
	_ = p.control(unix.EPOLL_CTL_MOD, s.fd, 0)
	p.paused = append(p.paused, s)
	p.resumeAt = l.now + acceptPause
}

func (p *poller) unpause() {
	for _, s := range p.paused {
		if !s.stopped {
			_ = p.control(unix.EPOLL_CTL_MOD, s.fd, unix.EPOLLIN)
		}
	}
	p.paused = nil
}

func (p *poller) close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	p.closed = true
	return errors.Join(unix.Close(p.event), unix.Close(p.epoll))
}
