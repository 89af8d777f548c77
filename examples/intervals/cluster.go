package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/ports"
)

const (
	// readyTimeout bounds each wait until all nodes are ready. With a tick of 2 s an election takes some
	// ten seconds.
	readyTimeout = time.Minute
	readyPoll    = 20 * time.Millisecond
	// transferTriesMax bounds the attempts to make node 1 the leader.
	transferTriesMax = 20
	// logTailMax is how much of the log of a node that has ended is shown, in bytes.
	logTailMax = 2 << 10
)

// build builds the isotone command into dir.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "isotone.exe") // the end of the name matters on Windows only
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/isotone/isotone/cmd/isotone").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// cluster is the nodes, one in each region.
type cluster struct {
	binary string
	nodes  []*node
	cancel context.CancelFunc // kills the nodes
}

// node is the process of a node.
type node struct {
	id    uint64
	addr  string        // for clients
	log   string        // path
	ended chan struct{} // closed when the process has ended
}

// startCluster starts the nodes. It does not wait until they are ready. A node that ends before stop
// was called ends the run.
func startCluster(ctx context.Context, s settings, wires *network, dir string, end context.CancelCauseFunc) (*cluster, error) {
	ports, err := ports.Addrs(2 * regions)
	if err != nil {
		return nil, err
	}
	raft := ports[regions:]
	var peers []string
	for i := range regions {
		delays := map[uint64]time.Duration{}
		for other := range regions {
			delays[uint64(other+1)] = s.delays[i][other]
		}
		front, err := wires.front(raft[i], delays)
		if err != nil {
			return nil, err
		}
		peers = append(peers, fmt.Sprintf("%d=%s", i+1, front))
	}
	running, cancel := context.WithCancel(ctx)
	c := &cluster{binary: s.binary, cancel: cancel}
	for i := range regions {
		n := &node{id: uint64(i + 1), addr: ports[i], log: filepath.Join(dir, fmt.Sprintf("node%d.log", i+1)), ended: make(chan struct{})}
		env := []string{
			"NODE_ID=" + strconv.Itoa(i+1), "HTTP_HOST=127.0.0.1", "HTTP_PORT=" + portOf(ports[i]), "ADVERTISE_ADDR=" + ports[i],
			"RAFT_ADDR=" + raft[i], "PEERS=" + strings.Join(peers, ","), "DATA_DIR=" + filepath.Join(dir, fmt.Sprintf("node%d", i+1)),
			"THRIFT_PORT=0", "LOOPS=1", "RTT_MS=" + milliseconds(s.tick), "INTERVAL_MS=" + milliseconds(s.interval),
		}
		if err := n.start(running, s.binary, env, end); err != nil {
			c.stop()
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// start starts the process, which is killed when ctx is done: its data is thrown away, so there is
// nothing to hand over. If it ends before, end is called.
func (n *node) start(ctx context.Context, binary string, env []string, end context.CancelCauseFunc) error {
	log, err := os.Create(n.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, binary, "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(inherited(), env...), log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(n.ended)
		err := cmd.Wait()
		if ctx.Err() == nil {
			end(fmt.Errorf("node %d has ended: %w\n%s", n.id, err, n.tail()))
		}
	}()
	return nil
}

// inherited returns the environment of a node, without the settings that this process may have got for
// another one.
func inherited() (env []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "SYSTEMROOT", "TEMP", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (n *node) tail() []byte {
	text, _ := os.ReadFile(n.log)
	return bytes.TrimSpace(text[max(0, len(text)-logTailMax):])
}

// stop ends all nodes and waits until they have ended.
func (c *cluster) stop() {
	c.cancel()
	for _, n := range c.nodes {
		<-n.ended
	}
}

// lead waits until the cluster serves, and makes node 1 its leader.
func (c *cluster) lead(ctx context.Context) (err error) {
	for range transferTriesMax {
		if err := c.awaitReady(ctx); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, c.binary, "leader", "transfer", "1", "--endpoint", c.nodes[0].addr)
		cmd.Env = inherited()
		out, failed := cmd.CombinedOutput()
		if failed == nil {
			return c.awaitReady(ctx)
		}
		err = fmt.Errorf("isotone leader transfer 1: %w: %s", failed, bytes.TrimSpace(out))
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// awaitReady waits until all nodes are ready.
func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("the nodes do not become ready"))
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	defer http.DefaultClient.CloseIdleConnections()
	for _, n := range c.nodes {
		for !isReady(ctx, n.addr) {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return fmt.Errorf("node %d: %w", n.id, context.Cause(ctx))
			}
		}
	}
	return nil
}

func isReady(ctx context.Context, addr string) bool {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/ready", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
