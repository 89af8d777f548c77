//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/check/await"
)

// Host isolates a node from the machine: it is a mount namespace and, on request, a network
// namespace.
//
// Only a sleeping process keeps these namespaces alive, and the kernel kills it with the test.
// So no mount, loop device, interface or iptables rule made in a Host outlives the test,
// however it ends.
type Host struct {
	sleeper *Process
	network *os.File // nil if the host shares this machine's network
}

// hostTimeout bounds how long unshare(1) may take.
const hostTimeout = 10 * time.Second

// NetworkDenied returns why nodes can have no network of their own here, or "".
var NetworkDenied = sync.OnceValue(func() string {
	return tryOnHost("--net", `ip link add hub type bridge && ip link add end1 type veth peer name end2 &&
		iptables -w -A INPUT -m statistic --mode random --probability 0.5 -j DROP`)
})

// tryOnHost returns why a script cannot be run in new namespaces, or "".
func tryOnHost(network, script string) string {
	if os.Geteuid() != 0 {
		return "namespaces, mounts and iptables need root"
	}
	out, err := exec.Command("unshare", "--mount", network, "sh", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("not possible here: %v: %s", err, bytes.TrimSpace(out))
	}
	return ""
}

// newHost makes a host that ends with the test, so it must be made before what runs in it.
func newHost(t testing.TB, name, logPath string, network bool) *Host {
	t.Helper()
	command := []string{"unshare", "--mount"}
	if network {
		command = append(command, "--net")
	}
	p, err := Run("host of "+name, logPath, []string{"PATH=" + os.Getenv("PATH")}, append(command, "sleep", "infinity"))
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{sleeper: p}
	t.Cleanup(func() { h.close(t) })
	await.Done(t, hostTimeout, func() (bool, string) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID()))
		return err == nil && string(comm) == "sleep\n", "unshare is not ready: " + p.Log()
	})
	if network {
		if h.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID())); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *Host) close(t testing.TB) {
	err := h.sleeper.Kill()
	_, waitErr := h.sleeper.WaitExit(ExitTimeout)
	if h.network != nil {
		err = errors.Join(err, h.network.Close())
	}
	if err := errors.Join(err, waitErr); err != nil {
		t.Error(err)
	}
}

// command returns the command line that runs a command on the host. The command keeps the
// process ID.
func (h *Host) command(args ...string) []string {
	enter := []string{"nsenter", "--target", fmt.Sprint(h.sleeper.PID()), "--mount"}
	if h.network != nil {
		enter = append(enter, "--net")
	}
	return append(append(enter, "--"), args...)
}

// do runs a short command on the host.
func (h *Host) do(args ...string) error {
	command := h.command(args...)
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("chaos: %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// homeNetwork is the network namespace of the test.
var homeNetwork = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/ns/net") })

// dial connects to addr from inside the host's network.
func (h *Host) dial(addr string, timeout time.Duration) (conn net.Conn, err error) {
	err = h.inside(func() (err error) {
		conn, err = net.DialTimeout("tcp", addr, timeout)
		return err
	})
	return conn, err
}

// inside calls do inside the host's network. Sockets that it opens stay there when its thread has
// returned to the network of the test.
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
		panic("chaos: a thread cannot return to the network of the test: " + err.Error())
	}
	return err
}

// routes has the hosts from which some addresses are dialed; all others are dialed
// from this machine's own network.
var routes sync.Map // from string to *Host
