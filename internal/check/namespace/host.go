//go:build linux

// Package namespace has processes run on hosts of their own: in mount and network namespaces that end with this
// process, however it ends. Packages chaos and verify use it.
package namespace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/check/child"
)

// Host is a mount namespace and, on request, a network namespace.
//
// Only a sleeping process keeps these namespaces alive, and the kernel kills it with this one. So no mount, loop
// device, interface or iptables rule made in a Host outlives this process. Any goroutine may call its methods.
type Host struct {
	sleeper *child.Process
	network *os.File // nil if the host shares this machine's network
}

const (
	// readyTimeout bounds how long unshare(1) may take, endTimeout how long the end of the host may.
	readyTimeout = time.Minute
	endTimeout   = 20 * time.Second
	poll         = 2 * time.Millisecond
)

// NetworkDenied returns why nodes can have no network of their own here, or "".
var NetworkDenied = sync.OnceValue(func() string {
	return Try("--net", `ip link add hub type bridge && ip link add end1 type veth peer name end2 &&
		iptables -w -A INPUT -m statistic --mode random --probability 0.5 -j DROP`)
})

// Try returns why a script cannot be run in new namespaces, or "". The kind is an option of unshare(1).
func Try(kind, script string) string {
	if os.Geteuid() != 0 {
		return "namespaces, mounts and iptables need root"
	}
	out, err := exec.Command("unshare", "--mount", kind, "sh", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("not possible here: %v: %s", err, bytes.TrimSpace(out))
	}
	return ""
}

// New makes a host, with a network of its own if network is set. Its output, hardly any, is appended to the file at
// logPath.
func New(name, logPath string, network bool) (h *Host, err error) {
	command := []string{"unshare", "--mount"}
	if network {
		command = append(command, "--net")
	}
	p, err := child.Run("host of "+name, logPath, []string{"PATH=" + os.Getenv("PATH")}, append(command, "sleep", "infinity"))
	if err != nil {
		return nil, err
	}
	h = &Host{sleeper: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	for end := time.Now().Add(readyTimeout); ; time.Sleep(poll) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID())); err == nil && string(comm) == "sleep\n" {
			break
		}
		if p.Exited() || time.Now().After(end) {
			return h, fmt.Errorf("unshare is not ready: %s", p.Log())
		}
	}
	if network {
		h.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID()))
	}
	return h, err
}

// Close ends the host. What runs in it keeps its namespaces alive until it has ended, too.
func (h *Host) Close() error {
	err := h.sleeper.Signal(os.Kill)
	_, waitErr := h.sleeper.WaitExit(endTimeout)
	if h.network != nil {
		err = errors.Join(err, h.network.Close())
	}
	return errors.Join(err, waitErr)
}

// Command returns the command line that runs a command on the host. The command keeps the process ID.
func (h *Host) Command(args ...string) []string {
	enter := []string{"nsenter", "--target", fmt.Sprint(h.sleeper.PID()), "--mount"}
	if h.network != nil {
		enter = append(enter, "--net")
	}
	return append(append(enter, "--"), args...)
}

// Do runs a short command on the host.
func (h *Host) Do(args ...string) error {
	command := h.Command(args...)
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// homeNetwork is the network namespace of this process.
var homeNetwork = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/ns/net") })

// Dial connects to addr from inside the host's network.
func (h *Host) Dial(addr string, timeout time.Duration) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return h.DialContext(ctx, "tcp", addr)
}

// DialContext is [Host.Dial] until ctx is done. The address has no name, so that no other thread opens the socket.
func (h *Host) DialContext(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = h.inside(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// inside calls do inside the host's network. Sockets that it opens stay there when its thread has returned.
func (h *Host) inside(do func() error) error {
	home, err := homeNetwork()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(h.network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	err = do()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic("namespace: a thread cannot return to its network: " + err.Error())
	}
	return err
}
