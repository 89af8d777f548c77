package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/ports"
)

const (
	nodeCount = 3
	// readyTimeout bounds the wait until the cluster issues timestamps.
	readyTimeout = time.Minute
	// downTime is how long a node that was killed stays down.
	downTime = time.Second
	// logTailMax is how much of the log of a node that has ended is shown, in bytes.
	logTailMax = 2 << 10
	// answerMax bounds what is read of an answer over HTTP.
	answerMax = 1 << 20
	// askTimeout bounds a question over HTTP.
	askTimeout = 2 * time.Second
)

// oracle is a client of a cluster, which may have been started here.
type oracle struct {
	*client.Client
	cluster *cluster // nil if it was not
}

// openOracle connects to the cluster of s, or starts one.
func openOracle(ctx context.Context, s settings, progress io.Writer) (*oracle, error) {
	addrs := strings.Split(s.isotone, ",")
	var c *cluster
	if s.isotone == "" {
		var err error
		if c, err = startCluster(ctx, s.binary, progress); err != nil {
			return nil, err
		}
		addrs = c.addrs()
	}
	if c == nil {
		fmt.Fprintf(progress, "connecting to %s\n", s.isotone)
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	connected, err := client.New(ready, addrs...)
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.stop())
		}
		return nil, fmt.Errorf("isotone: %w", err)
	}
	return &oracle{Client: connected, cluster: c}, nil
}

func (o *oracle) close() error {
	err := o.Client.Close()
	if o.cluster != nil {
		err = errors.Join(err, o.cluster.stop())
	}
	return err
}

// cluster is nodes on this machine. Its methods must not be called concurrently.
type cluster struct {
	binary string
	dir    string
	nodes  []*node
	http   *http.Client
}

// node is a node and its process.
type node struct {
	addr string // for clients
	log  string // path
	env  []string
	cmd  *exec.Cmd
}

func startCluster(ctx context.Context, binary string, progress io.Writer) (_ *cluster, err error) {
	c := &cluster{binary: binary, http: &http.Client{Timeout: askTimeout}}
	if c.dir, err = os.MkdirTemp("", "isotone-bank-"); err != nil {
		return nil, err
	}
	if c.binary == "" {
		fmt.Fprintln(progress, "building isotone")
		if c.binary, err = build(ctx, c.dir); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	fmt.Fprintf(progress, "starting %d nodes\n", nodeCount)
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// build builds the isotone program into dir, from the source that this program was built with.
func build(ctx context.Context, dir string) (string, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/isotone/isotone").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w: run this in examples/bank, or give --binary", err)
	}
	path := filepath.Join(dir, "isotone.exe") // the end of the name matters on Windows only
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/isotone")
	cmd.Dir = strings.TrimSpace(string(source))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// start starts all nodes. They form a cluster by themselves.
func (c *cluster) start() error {
	first, err := ports.Free(2 * nodeCount) // of clients, then of peers
	if err != nil {
		return err
	}
	var peers []string
	for i := range nodeCount {
		peers = append(peers, fmt.Sprintf("%d=127.0.0.1:%d", i+1, first+nodeCount+i))
	}
	for i := range nodeCount {
		n := &node{addr: fmt.Sprint("127.0.0.1:", first+i), log: filepath.Join(c.dir, fmt.Sprintf("node%d.log", i+1))}
		n.env = append(inherited(),
			"NODE_ID="+strconv.Itoa(i+1), "HTTP_HOST=127.0.0.1", fmt.Sprint("HTTP_PORT=", first+i), "ADVERTISE_ADDR="+n.addr,
			fmt.Sprint("RAFT_ADDR=127.0.0.1:", first+nodeCount+i), "PEERS="+strings.Join(peers, ","),
			"DATA_DIR="+filepath.Join(c.dir, fmt.Sprintf("node%d", i+1)), "THRIFT_PORT=0", "LOOPS=1")
		if err := n.start(c.binary); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

func (n *node) start(binary string) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	n.cmd = exec.Command(binary, "serve")
	n.cmd.Env, n.cmd.Stdout, n.cmd.Stderr = n.env, log, log
	return n.cmd.Start()
}

// kill kills the process and waits for its end.
func (n *node) kill() {
	if n.cmd != nil && n.cmd.Process != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
	}
}

// killLeader kills the process of the leader, and starts it again after a while. Without a leader it does
// nothing.
func (c *cluster) killLeader(ctx context.Context) error {
	n, err := c.leader(ctx)
	if n == nil || err != nil {
		return err
	}
	n.kill()
	timer := time.NewTimer(downTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return n.start(c.binary)
}

// leader returns the leader that the first node knows that answers, or nil. It fails if no node
// answers.
func (c *cluster) leader(ctx context.Context) (*node, error) {
	var failures []error
	for _, n := range c.nodes {
		addr, err := c.ask(ctx, n)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w\n%s", n.addr, err, n.tail()))
			continue
		}
		for _, n := range c.nodes {
			if n.addr == addr {
				return n, nil
			}
		}
		return nil, nil
	}
	return nil, errors.Join(failures...)
}

// ask asks a node for the address of the leader, which is "" if there is none.
func (c *cluster) ask(ctx context.Context, n *node) (addr string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/members", nil)
	if err != nil {
		return "", err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var told struct {
		Leader *struct {
			Addr string `json:"addr"`
		} `json:"leader"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, answerMax)).Decode(&told); err != nil || told.Leader == nil {
		return "", err
	}
	return told.Leader.Addr, nil
}

// tail returns the end of the log.
func (n *node) tail() []byte {
	text, _ := os.ReadFile(n.log)
	return bytes.TrimSpace(text[max(0, len(text)-logTailMax):])
}

// stop ends all nodes and removes their data.
func (c *cluster) stop() error {
	for _, n := range c.nodes {
		n.kill()
	}
	c.http.CloseIdleConnections()
	return os.RemoveAll(c.dir)
}

func (c *cluster) addrs() (addrs []string) {
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// inherited returns the environment of a node, without the settings that this process may have got for
// another one.
func inherited() (env []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "SYSTEMROOT", "TEMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
