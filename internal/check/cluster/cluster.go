// Package cluster starts the nodes of a cluster as processes of this machine, for demonstrations and
// examples: their settings, their ends, and what they say of themselves. Tests use package chaos, which
// can do much more to nodes.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/ports"
)

const (
	// ReadyTimeout bounds each wait for nodes to be ready. With a tick of 2 s an election takes some ten
	// seconds.
	ReadyTimeout = time.Minute
	// PollInterval is the time between two questions whether a node is ready.
	PollInterval = 20 * time.Millisecond
	// askTimeout bounds one of them, answerMax the answer in bytes.
	askTimeout = time.Second
	answerMax  = 64 << 10
)

// Cluster is the nodes of a cluster on this machine. One goroutine uses it.
type Cluster struct {
	// Nodes are in the order of their IDs, from 1.
	Nodes []*Node
	http  *http.Client
}

// New returns a cluster of count nodes with a command that " serve" is appended to, and with more settings.
// Their data and logs are in dir. None of them runs yet; end them by [Cluster.Kill].
func New(count int, dir string, command []string, settings ...string) (*Cluster, error) {
	addrs, err := ports.Addrs(2 * count) // of clients, then of peers
	if err != nil {
		return nil, err
	}
	c := &Cluster{http: &http.Client{Transport: &http.Transport{}}}
	for i := range count {
		n := &Node{ID: uint64(i + 1), Addr: addrs[i], RaftAddr: addrs[count+i], http: c.http}
		n.log = filepath.Join(dir, fmt.Sprintf("node%d.log", n.ID))
		n.command = append(slices.Clone(command), "serve")
		n.Env = slices.Concat(Inherited(), Settings(i, addrs[:count], addrs[count:], dir), settings)
		c.Nodes = append(c.Nodes, n)
	}
	return c, nil
}

// Settings returns the settings of one node of a cluster: that with the ID i+1. The nodes serve clients at addrs, and
// each other at peerAddrs. Their data is in dir.
func Settings(i int, addrs, peerAddrs []string, dir string) []string {
	var peers []string
	for i, addr := range peerAddrs {
		peers = append(peers, fmt.Sprintf("%d=%s", i+1, addr))
	}
	colon := strings.LastIndexByte(addrs[i], ':')
	return []string{
		fmt.Sprintf("NODE_ID=%d", i+1), "HTTP_HOST=" + addrs[i][:colon], "HTTP_PORT=" + addrs[i][colon+1:], "ADVERTISE_ADDR=" + addrs[i],
		"RAFT_ADDR=" + peerAddrs[i], "PEERS=" + strings.Join(peers, ","),
		"DATA_DIR=" + filepath.Join(dir, fmt.Sprintf("node%d", i+1)), "THRIFT_PORT=0", "LOOPS=1",
	}
}

// Build builds the isotone command into dir, from the source that this program was built with.
func Build(ctx context.Context, dir string) (string, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/isotone/isotone").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w: is this directory one of the module?", err)
	}
	path := filepath.Join(dir, "isotone.exe") // the end of the name matters on Windows only
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/isotone")
	cmd.Dir = strings.TrimSpace(string(source)) // its dependencies may not be those of the module of this program
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Variables are what nodes inherit: what any process needs. Settings of other nodes, which the environment may
// have as well, would break the cluster. A test adds its own before it starts anything.
var Variables = strings.Fields("PATH HOME TMPDIR TEMP TMP SYSTEMROOT USERPROFILE GOCOVERDIR GODEBUG GOMAXPROCS GOTRACEBACK")

// Inherited returns those of [Variables] that this process has, for nodes and for commands that reach them.
func Inherited() (kept []string) {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name) // case has no meaning there
		}
		if slices.Contains(Variables, name) {
			kept = append(kept, variable)
		}
	}
	return kept
}

// Start starts all nodes. It does not wait until they serve.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends all processes: their data is thrown away, so there is nothing to hand over.
func (c *Cluster) Kill() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Kill())
	}
	c.http.CloseIdleConnections()
	return errors.Join(errs...)
}

// Addrs returns the addresses for clients.
func (c *Cluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// WaitReady waits until all nodes serve, or can name a leader that does.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, ReadyTimeout, fmt.Errorf("the nodes are not ready after %v", ReadyTimeout))
	defer cancel()
	for _, n := range c.Nodes {
		for !n.ready(ctx) {
			if !n.Running() {
				return n.Fault()
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(PollInterval):
			}
		}
	}
	return nil
}

func (n *Node) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return n.ask(ctx, "/ready", nil) == nil
}

// Leader returns the leader that the first node knows that answers, or nil. It fails if no node answers.
func (c *Cluster) Leader(ctx context.Context) (*Node, error) {
	var failures []error
	for _, n := range c.Nodes {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		m, err := n.Members(asking)
		cancel()
		if err != nil {
			failures = append(failures, fmt.Errorf("node %d: %w; the end of its log:\n%s", n.ID, err, n.tail()))
			continue
		}
		if m.Leader == nil || m.Leader.NodeID < 1 || m.Leader.NodeID > uint64(len(c.Nodes)) {
			return nil, nil
		}
		return c.Nodes[m.Leader.NodeID-1], nil
	}
	return nil, errors.Join(failures...)
}

// Members is what a node says of itself and of its leader.
type Members struct {
	NodeID uint64                   `json:"nodeID"`
	Role   string                   `json:"role"`
	Term   uint64                   `json:"term"`
	Leader *struct{ NodeID uint64 } `json:"leader"` // nil if it knows none
}

// Members asks a node. Any goroutine may call it.
func (n *Node) Members(ctx context.Context) (m Members, err error) {
	return m, n.ask(ctx, "/members", &m)
}

// ask decodes the answer of a node into a value, unless that is nil. The status has to be 200.
func (n *Node) ask(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Addr+path, nil)
	if err != nil {
		return err
	}
	answer, err := n.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", request.URL, answer.Status)
	case into == nil:
		return nil
	}
	return json.NewDecoder(io.LimitReader(answer.Body, answerMax)).Decode(into)
}
