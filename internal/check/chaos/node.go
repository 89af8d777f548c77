//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/faults"
)

// Node is one member of a cluster: its settings, and the process that runs it at
// the moment. Its methods fail the test when the harness itself fails, and may be
// called from the test's goroutine only.
type Node struct {
	ID uint64
	// HTTPAddr and RaftAddr are where it listens for clients and for peers.
	HTTPAddr, RaftAddr string
	// Binary is the isotone command of the next start.
	Binary string
	// Dir is its data directory. It may be changed while the node is down.
	Dir string
	// Env holds further settings for the next start. They override the others.
	Env map[string]string
	// Prefix is a command that runs the node's at the next start, in the same process.
	Prefix []string

	t       testing.TB
	next    bool   // see ChangeVersion
	peers   string // PEERS; "" if it is not set
	join    string // JOIN; "" if it is not set
	logPath string
	clock   string // path of the clock fault file; "" if there is none
	// clockWrong is set while SetClock has set the clock wrong.
	clockWrong bool
	host       *namespace.Host    // where it runs; nil: outside of any host
	network    *namespace.Network // of its host; nil: that of this machine
	volume     *volume            // where its data is; nil: no volume of its own
	proc       *Process
	runs       []*Process
	frozen     bool
	started    time.Time
}

// NextLevel is the feature level of a version to come: one above that of this version.
const NextLevel = oracle.LevelNewest + 1

// TracePath is where it writes its protocol trace with [Options.Trace].
func (n *Node) TracePath() string { return strings.TrimSuffix(n.logPath, ".log") + ".trace" }

// Start runs the node. It does not wait until the node serves.
func (n *Node) Start() {
	n.t.Helper()
	if n.proc != nil && !n.proc.Exited() {
		n.t.Fatalf("node %d runs already", n.ID)
	}
	name := fmt.Sprintf("node %d, run %d", n.ID, len(n.runs)+1)
	p, err := Run(name, n.logPath, n.environ(), n.command())
	n.do(err)
	n.proc, n.frozen, n.started = p, false, time.Now()
	n.runs = append(n.runs, p)
}

func (n *Node) command() []string {
	command := append(slices.Clone(n.Prefix), n.Binary, "serve")
	if n.host != nil {
		return n.host.Command(command...)
	}
	return command
}

// environ returns the node's environment. Only PATH and TMPDIR are inherited.
func (n *Node) environ() []string {
	host, port, _ := net.SplitHostPort(n.HTTPAddr)
	settings := map[string]string{
		"PATH":           os.Getenv("PATH"),
		"TMPDIR":         os.TempDir(),
		"NODE_ID":        fmt.Sprint(n.ID),
		"HTTP_HOST":      host,
		"HTTP_PORT":      port,
		"ADVERTISE_ADDR": n.HTTPAddr,
		"RAFT_ADDR":      n.RaftAddr,
		"PEERS":          n.peers,
		"JOIN":           n.join,
		"DATA_DIR":       n.Dir,
		"THRIFT_PORT":    "0",
	}
	if !strings.HasPrefix(n.RaftAddr, "127.") {
		// It has a network namespace of its own, and all of this test is another machine to it.
		settings["PEER_INSECURE"], settings["ANONYMOUS"] = "1", "all"
	}
	if n.next {
		settings["ISOTONE_FAULT_LEVEL"] = fmt.Sprint(NextLevel)
	}
	if n.clock != "" {
		settings["ISOTONE_FAULT_CLOCK"] = n.clock
	}
	maps.Copy(settings, n.Env)
	var env []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		env = append(env, name+"="+settings[name])
	}
	return env
}

// ChangeVersion makes the next start one of a version to come, which knows [NextLevel], or one of this
// version again.
func (n *Node) ChangeVersion() { n.next = !n.next }

// Process returns the process of the latest start.
func (n *Node) Process() *Process { return n.proc }

// Kill ends the node with SIGKILL and waits until it is gone.
func (n *Node) Kill() {
	n.t.Helper()
	n.do(n.proc.Kill())
	n.WaitExit(ExitTimeout)
}

// Term sends SIGTERM. The node must exit with code 0; see [Node.WaitExit].
func (n *Node) Term() {
	n.t.Helper()
	// Until it has printed something it may not have asked for the signal yet, which then kills it.
	for end := time.Now().Add(ReadyTimeout); n.Log() == "" && !n.Exited() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	n.do(n.proc.Term())
}

// Shutdown sends SIGTERM and waits until the node has exited with code 0.
func (n *Node) Shutdown() {
	n.t.Helper()
	n.Term()
	if code := n.WaitExit(ExitTimeout); code != 0 {
		n.t.Fatalf("node %d exited with code %d after SIGTERM", n.ID, code)
	}
}

// Stop freezes the node (SIGSTOP).
func (n *Node) Stop() {
	n.t.Helper()
	n.do(n.proc.Stop())
	n.frozen = true
}

// Cont resumes a frozen node (SIGCONT).
func (n *Node) Cont() {
	n.t.Helper()
	n.do(n.proc.Cont())
	n.frozen = false
}

func (n *Node) do(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// Exited reports whether the node has ended. One that was never started has.
func (n *Node) Exited() bool { return n.proc == nil || n.proc.Exited() }

// answers reports whether the node can be expected to answer anything.
func (n *Node) answers() bool { return !n.Exited() && !n.frozen }

// ExpectExit says that the node's present run may end by itself.
func (n *Node) ExpectExit() { n.proc.ExpectExit() }

// WaitExit waits until the node has ended and returns its exit code.
func (n *Node) WaitExit(timeout time.Duration) int {
	n.t.Helper()
	code, err := n.proc.WaitExit(timeout)
	n.do(err)
	return code
}

// Log returns what the current run has printed so far.
func (n *Node) Log() string { return n.proc.Log() }

// ClockSettle is how long to wait after [Node.SetClock]: the node polls the file every 20 ms
// and reads the clock every 100 ms.
const ClockSettle = 250 * time.Millisecond

// SetClock begins a fault of the node's clock, or ends it with the zero setting. The
// cluster must have been made with [Options.FaultClock]. A running node follows within
// [ClockSettle].
func (n *Node) SetClock(f faults.ClockSetting) {
	n.t.Helper()
	if n.clock == "" {
		n.t.Fatalf("node %d has no fault clock", n.ID)
	}
	setting, err := json.Marshal(f)
	n.do(err)
	n.do(replaceFile(n.clock, setting))
	f.SteadyPPM = 0 // no complaint, within what is allowed
	n.clockWrong = f != faults.ClockSetting{}
}

// WaitReady waits until GET /ready answers 200. If [Node.SetClock] has set the clock wrong, an
// answer that complains only about the clock is enough.
func (n *Node) WaitReady(timeout time.Duration) {
	n.t.Helper()
	last := "it never answered"
	await.Done(n.t, timeout, func() (bool, string) {
		if n.Exited() {
			n.t.Fatalf("node %d ended instead of becoming ready", n.ID)
		}
		if a, err := Get(n.HTTPAddr, "/ready", readyTimeout); err == nil {
			last = string(a.Body)
			wrong := n.clockWrong && strings.Contains(last, "it makes no ids until that is set right")
			return a.Status == 200 || wrong, fmt.Sprintf("node %d is not ready: %s", n.ID, last)
		}
		return false, fmt.Sprintf("node %d is not ready: %s", n.ID, last)
	})
}
