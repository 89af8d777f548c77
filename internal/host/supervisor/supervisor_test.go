package supervisor_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/supervisor"
)

// listen is the socket of a supervisor at that address. It returns what the next datagram says.
func listen(t *testing.T, addr string) (next func() string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no sockets of this kind")
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv(supervisor.Variable, addr)
	return func() string {
		buf := make([]byte, 4096)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestSupervisor_IsToldTheStates(t *testing.T) {
	next := listen(t, filepath.Join(t.TempDir(), "notify"))
	if err := supervisor.Ready("serving"); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "READY=1\nSTATUS=serving" {
		t.Errorf("ready: %q", got)
	}
	if err := supervisor.Stopping(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=15000000" {
		t.Errorf("stopping: %q", got)
	}
}

func TestSupervisor_MayHaveAnAbstractSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has abstract sockets")
	}
	next := listen(t, fmt.Sprintf("@isotone-supervisor-test-%d", os.Getpid()))
	if err := supervisor.Ready("serving"); err != nil {
		t.Fatal(err)
	}
	if got := next(); !strings.HasPrefix(got, "READY=1\n") {
		t.Errorf("ready: %q", got)
	}
}

func TestSupervisor_NobodyToTellIsNoError(t *testing.T) {
	t.Setenv(supervisor.Variable, "")
	if err := supervisor.Ready("serving"); err != nil {
		t.Error(err)
	}
}

func TestSupervisor_ErrorsNameTheVariable(t *testing.T) {
	for _, name := range []string{"relative", "vsock:2:1234", filepath.Join(t.TempDir(), "nobody")} {
		t.Setenv(supervisor.Variable, name)
		if err := supervisor.Ready("serving"); err == nil || !strings.Contains(err.Error(), supervisor.Variable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSupervisor_OneThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	listen(t, filepath.Join(t.TempDir(), "notify"))
	begun := time.Now()
	var err error
	for i := 0; i < 10_000 && err == nil; i++ {
		err = supervisor.Ready("serving")
	}
	if err == nil {
		t.Skip("the queue of this system's sockets takes 10,000 datagrams")
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v to give up", took)
	}
}
