package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/cluster"
)

// transferTriesMax bounds the attempts to make node 1 the leader.
const transferTriesMax = 20

// startCluster starts the nodes, one in each region, and returns a function that ends them. It does not wait
// until they are ready. A node that ends before ends the run.
func startCluster(ctx context.Context, s settings, wires *network, dir string, end context.CancelCauseFunc) (*cluster.Cluster, func() error, error) {
	c, err := cluster.New(regions, dir, []string{s.binary}, "RTT_MS="+milliseconds(s.tick), "INTERVAL_MS="+milliseconds(s.interval))
	if err != nil {
		return nil, nil, err
	}
	var peers []string
	for i, n := range c.Nodes {
		delays := map[uint64]time.Duration{}
		for other := range regions {
			delays[uint64(other+1)] = s.delays[i][other]
		}
		front, err := wires.front(n.RaftAddr, delays)
		if err != nil {
			return nil, nil, err
		}
		peers = append(peers, fmt.Sprintf("%d=%s", n.ID, front))
	}
	running, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	stop := func() error {
		cancel()
		watchers.Wait()
		return c.Kill()
	}
	for _, n := range c.Nodes {
		n.Env = append(n.Env, "PEERS="+strings.Join(peers, ","))
		if err := n.Start(); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		watchers.Go(func() {
			select {
			case <-n.Ended():
				end(n.Fault())
			case <-running.Done():
			}
		})
	}
	return c, stop, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lead waits until the cluster serves, and makes node 1 its leader.
func lead(ctx context.Context, c *cluster.Cluster, binary string) (err error) {
	for range transferTriesMax {
		if err := c.WaitReady(ctx); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, binary, "leader", "transfer", "1", "--endpoint", c.Nodes[0].Addr)
		cmd.Env = cluster.Inherited()
		out, failed := cmd.CombinedOutput()
		if failed == nil {
			return c.WaitReady(ctx)
		}
		err = fmt.Errorf("isotone leader transfer 1: %w: %s", failed, bytes.TrimSpace(out))
		if ctx.Err() != nil {
			break
		}
	}
	return err
}
