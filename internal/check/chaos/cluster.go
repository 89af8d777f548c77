//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/ports"
)

const (
	// ReadyTimeout bounds every wait for a cluster to serve. An election takes
	// some 300 ms; this is for machines that do other work as well.
	ReadyTimeout = time.Minute
	// ExitTimeout bounds every wait for a process to end. A node gives its
	// successor one second and running requests five.
	ExitTimeout = time.Minute

	// readyTimeout bounds one request to a node, and pollInterval is the time between polls.
	readyTimeout = 2 * time.Second
	pollInterval = 5 * time.Millisecond

	// logTailMax is how much of each log a failed test prints.
	logTailMax = 8 << 10
)

// Options describe a cluster.
type Options struct {
	// Binary is the isotone command; see [Build].
	Binary string
	// Versions has storms change the versions of nodes; see [Node.ChangeVersion].
	Versions bool
	// Nodes is their number; 0 means 3.
	Nodes int
	// Env holds further settings for all nodes.
	Env map[string]string
	// FaultClock gives every node a clock that [Node.SetClock] can set wrong.
	FaultClock bool
	// Trace has every node write a protocol trace; see [Node.TracePath].
	Trace bool
	// FaultSteps lets nodes be stopped at a step by [Cluster.StopAt].
	FaultSteps bool
	// Volumes gives every node a small file system of its own, Network a network namespace
	// of its own; see [VolumesDenied] and [namespace.NetworkDenied].
	Volumes, Network bool
	// Proxies sends the connections between nodes through [Cluster.Proxies]. It cannot be
	// combined with Network.
	Proxies bool
}

// Cluster is a set of nodes on this machine.
type Cluster struct {
	// Nodes are in the order of their IDs, from 1.
	Nodes   []*Node
	t       testing.TB
	options Options
	// Dir holds the data directories and the logs.
	Dir string
	// former are nodes whose place in Nodes a successor has taken.
	former []*Node
	// Proxies has one proxy for each pair of nodes with [Options.Proxies], else none. Of a pair, the
	// node with the higher ID dials.
	Proxies []*Proxy
}

// NewCluster sets up a cluster without starting a node. The cluster ends with the test.
func NewCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	count := o.Nodes
	if count == 0 {
		count = 3
	}
	c := &Cluster{t: t, options: o, Dir: t.TempDir()}
	addrs, err := ports.Addrs(2 * count) // the ports of clients are neighbours: those of PD_PORT are at one distance from them
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		c.Nodes = append(c.Nodes, c.newNode(uint64(i+1), addrs[i], addrs[count+i]))
	}
	if o.Volumes || o.Network {
		c.addHosts(o)
	}
	peers := c.peersOf(o.Proxies)
	for _, n := range c.Nodes {
		n.peers = peers
	}
	t.Cleanup(c.cleanup)
	return c
}

func (c *Cluster) newNode(id uint64, httpAddr, raftAddr string) *Node {
	n := &Node{
		ID:       id,
		HTTPAddr: httpAddr,
		RaftAddr: raftAddr,
		Dir:      filepath.Join(c.Dir, fmt.Sprintf("node%d", id)),
		Env:      map[string]string{},
		t:        c.t,
		Binary:   c.options.Binary,
		logPath:  filepath.Join(c.Dir, fmt.Sprintf("node%d.log", id)),
	}
	maps.Copy(n.Env, c.options.Env)
	if c.options.FaultSteps {
		n.Env["ISOTONE_FAULT_STEP"] = c.stepFile()
	}
	if c.options.Trace {
		n.Env["TRACE_FILE"] = n.TracePath()
	}
	if c.options.FaultClock {
		n.clock = filepath.Join(c.Dir, fmt.Sprintf("clock%d.json", id))
	}
	return n
}

// addHosts puts every node on a host.
func (c *Cluster) addHosts(o Options) {
	c.t.Helper()
	var hosts []*namespace.Host
	for _, n := range c.Nodes {
		n.host = newHost(c.t, fmt.Sprintf("node %d", n.ID), filepath.Join(c.Dir, "hosts.log"), o.Network)
		hosts = append(hosts, n.host)
		if o.Volumes {
			n.volume = newVolume(c.t, n.host, n.Dir)
			n.Dir = filepath.Join(n.Dir, "data")
		}
	}
	if o.Network {
		c.joinHosts(hosts)
	}
}

// peersOf returns the PEERS setting of all nodes. With proxies, each node has the address of its
// front there, and so on record: whoever dials it passes a proxy.
func (c *Cluster) peersOf(proxies bool) string {
	var peers []string
	for _, n := range c.Nodes {
		addr := n.RaftAddr
		if proxies {
			addr = c.addFront(n)
		}
		peers = append(peers, fmt.Sprintf("%d=%s", n.ID, addr))
	}
	return strings.Join(peers, ",")
}

// StartCluster sets up a cluster, starts it and waits until all nodes are ready.
func StartCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := NewCluster(t, o)
	c.Start()
	c.WaitReady()
	return c
}

// Start starts all nodes.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.Nodes {
		n.Start()
	}
}

// Kill kills all running nodes at once.
func (c *Cluster) Kill() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if !n.Exited() {
			n.do(n.proc.Kill())
		}
	}
	for _, n := range c.Nodes {
		n.WaitExit(ExitTimeout)
	}
}

// Shutdown ends all nodes by SIGTERM, at once. All must exit with code 0.
func (c *Cluster) Shutdown() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if !n.Exited() {
			n.Term()
		}
	}
	for _, n := range c.Nodes {
		if code := n.WaitExit(ExitTimeout); code != 0 {
			c.t.Fatalf("node %d exited with code %d after SIGTERM", n.ID, code)
		}
	}
}

// Clone sets up another node like n, for a second process with the same ID. It has ports of
// its own, and uses the data directory dir, which the caller fills.
func (c *Cluster) Clone(n *Node, dir string) *Node {
	c.t.Helper()
	twin := *n
	twin.move()
	twin.Dir, twin.proc, twin.runs = dir, nil, nil
	_, port, _ := net.SplitHostPort(twin.HTTPAddr)
	twin.logPath = filepath.Join(c.Dir, fmt.Sprintf("node%d-clone%s.log", n.ID, port))
	c.t.Cleanup(func() { c.clean(&twin) })
	return &twin
}

// WaitReady waits until every running node is ready and all name the same leader.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if n.answers() {
			n.WaitReady(ReadyTimeout)
		}
	}
	c.WaitLeader()
}

// voteSilence is how long a node that has just started may keep out of elections: one
// election timeout at the default RTT_MS (I5), and as much again for a busy machine.
const voteSilence = 400 * time.Millisecond

// Settle waits until the cluster has recovered from every restart: all running nodes are
// ready, connected with each other, and take part in elections again. Measurements made
// after that are not distorted by what the test did before.
func (c *Cluster) Settle() {
	c.t.Helper()
	c.WaitReady()
	for _, n := range c.Nodes {
		if n.answers() {
			c.waitConnected(n)
		}
	}
	for _, n := range c.Nodes {
		if n.answers() {
			time.Sleep(time.Until(n.started.Add(voteSilence)))
		}
	}
	c.WaitLeader()
}

// waitConnected waits until a node is connected with all others that run.
func (c *Cluster) waitConnected(n *Node) {
	c.t.Helper()
	var names []string
	for _, peer := range c.Others(n) {
		if peer.answers() {
			names = append(names, fmt.Sprintf("isotone_peer_connected{peer=\"%d\"}", peer.ID))
		}
	}
	await.Done(c.t, ReadyTimeout, func() (bool, string) {
		values, err := metrics(n.HTTPAddr, names...)
		return err == nil && !slices.ContainsFunc(values, func(v float64) bool { return v != 1 }), fmt.Sprintf("node %d is not connected with all others: %v are %v, %v", n.ID, names, values, err)
	})
}

// WaitLeader waits until every running node names the same leader, and returns it.
func (c *Cluster) WaitLeader() (leader *Node) {
	c.t.Helper()
	await.Done(c.t, ReadyTimeout, func() (bool, string) {
		leader = nil
		for _, n := range c.Nodes {
			if !n.answers() {
				continue
			}
			m, err := Members(n.HTTPAddr, readyTimeout)
			switch {
			case err != nil:
				return false, fmt.Sprintf("node %d does not answer: %v", n.ID, err)
			case m.Leader == nil:
				return false, fmt.Sprintf("node %d knows no leader", n.ID)
			case leader != nil && leader.ID != m.Leader.NodeID:
				return false, fmt.Sprintf("node %d leads for some, node %d for others", leader.ID, m.Leader.NodeID)
			}
			leader = c.Node(m.Leader.NodeID)
		}
		return leader != nil && leader.answers(), "the leader is gone"
	})
	return leader
}

// Leader returns the node that a running node names as the leader in the highest
// term, or nil.
func (c *Cluster) Leader() *Node {
	c.t.Helper()
	var leader *Node
	var term uint64
	for _, n := range c.Nodes {
		if !n.answers() {
			continue
		}
		if m, err := Members(n.HTTPAddr, readyTimeout); err == nil && m.Leader != nil && m.Term >= term {
			leader, term = c.Node(m.Leader.NodeID), m.Term
		}
	}
	return leader
}

// Node returns the node with an ID.
func (c *Cluster) Node(id uint64) *Node {
	c.t.Helper()
	if id < 1 || id > uint64(len(c.Nodes)) {
		c.t.Fatalf("no node has the ID %d", id)
	}
	return c.Nodes[id-1]
}

// Others returns all nodes but one.
func (c *Cluster) Others(n *Node) []*Node {
	var list []*Node
	for _, other := range c.Nodes {
		if other != n {
			list = append(list, other)
		}
	}
	return list
}

// Addrs returns the client addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var list []string
	for _, n := range c.Nodes {
		list = append(list, n.HTTPAddr)
	}
	return list
}

func (c *Cluster) cleanup() {
	for _, n := range c.Nodes {
		c.clean(n)
	}
}

// clean kills what still runs of a node, and reports runs that ended unexpectedly.
func (c *Cluster) clean(n *Node) {
	for _, p := range n.runs {
		if fault := p.Fault(); fault != "" {
			c.t.Error(fault)
		}
		if p.Exited() {
			continue
		}
		if err := p.Kill(); err != nil {
			c.t.Error(err)
		}
		if _, err := p.WaitExit(ExitTimeout); err != nil {
			c.t.Error(err)
		}
	}
	if c.t.Failed() {
		c.t.Logf("end of the log of node %d (%s):\n%s", n.ID, n.HTTPAddr, tail(n.logPath, logTailMax))
		n.keepLog()
	}
}

// keepLog copies the whole log, and the protocol trace if there is one, to the directory in CHAOS_LOGS, if that is set.
func (n *Node) keepLog() {
	dir := os.Getenv("CHAOS_LOGS")
	if dir == "" {
		return
	}
	for _, from := range []string{n.logPath, n.TracePath()} {
		path := filepath.Join(dir, strings.ReplaceAll(n.t.Name(), "/", "-")+"-"+filepath.Base(from))
		if err := copyFile(path, from); !errors.Is(err, fs.ErrNotExist) {
			n.t.Logf("whole: %s, %v", path, err)
		}
	}
}

func tail(path string, size int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(b[max(0, len(b)-size):])
}
