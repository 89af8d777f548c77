//go:build linux && !portable

package loop

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type nothing struct{}

func (nothing) Data(_ *Conn, b []byte) (int, error) { return len(b), nil }
func (nothing) Closed(*Conn, error)                 {}

// TestPoller_ForgetsEventsOfAClosedDescriptor: a connection ends in the middle of a turn
// and another gets its number; what epoll has reported for the first must not end the
// second.
func TestPoller_ForgetsEventsOfAClosedDescriptor(t *testing.T) {
	l, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	attach := func() (*Conn, int) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fds[0]), "")
		defer file.Close()
		nc, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Attach(nc, nil, Limits{}, nothing{})
		if err != nil {
			t.Fatal(err)
		}
		return c, fds[1]
	}
	first, other := attach()
	fd := first.fd
	if err := unix.Close(other); err != nil {
		t.Fatal(err)
	}
	n, err := l.poll.sleep(time.Second) // it hung up
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	stale := l.poll.events[0]
	l.end(first, ErrClosed)

	second, other := attach()
	defer unix.Close(other)
	if second.fd != fd {
		if second.fd, err = fd, unix.Dup2(second.fd, fd); err != nil {
			t.Fatal(err)
		}
	}
	if now := l.poll.slots[fd].generation; stale.Fd != int32(fd) || stale.Pad == now {
		t.Errorf("an event for descriptor %d, generation %d, would reach the one of generation %d", stale.Fd, stale.Pad, now)
	}
}
