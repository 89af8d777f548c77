package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/cluster"
)

const (
	nodeCount = 3
	// downTime is how long a node that was killed stays down.
	downTime = time.Second
)

// oracle is a client of a cluster, which may have been started here.
type oracle struct {
	*client.Client
	nodes *cluster.Cluster // nil if it was not
	dir   string           // its data
}

// openOracle connects to the cluster of s, or starts one.
func openOracle(ctx context.Context, s settings, progress io.Writer) (_ *oracle, err error) {
	o := new(oracle)
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	addrs := strings.Split(s.isotone, ",")
	if s.isotone == "" {
		if err := o.start(ctx, s.binary, progress); err != nil {
			return nil, err
		}
		addrs = o.nodes.Addrs()
	} else {
		fmt.Fprintf(progress, "connecting to %s\n", s.isotone)
	}
	ready, cancel := context.WithTimeout(ctx, cluster.ReadyTimeout)
	defer cancel()
	if o.Client, err = client.New(ready, addrs...); err != nil {
		return nil, fmt.Errorf("isotone: %w", err)
	}
	return o, nil
}

// start starts the nodes, and waits until they have formed a cluster.
func (o *oracle) start(ctx context.Context, binary string, progress io.Writer) (err error) {
	if o.dir, err = os.MkdirTemp("", "isotone-bank-"); err != nil {
		return err
	}
	if binary == "" {
		fmt.Fprintln(progress, "building isotone")
		if binary, err = cluster.Build(ctx, o.dir); err != nil {
			return fmt.Errorf("%w; --binary names one that is built", err)
		}
	}
	fmt.Fprintf(progress, "starting %d nodes\n", nodeCount)
	if o.nodes, err = cluster.New(nodeCount, o.dir, []string{binary}); err != nil {
		return err
	}
	if err := o.nodes.Start(); err != nil {
		return err
	}
	return o.nodes.WaitReady(ctx)
}

// close closes the client, ends the nodes and removes their data.
func (o *oracle) close() (err error) {
	if o.Client != nil {
		err = o.Client.Close()
	}
	if o.nodes != nil {
		err = errors.Join(err, o.nodes.Kill())
	}
	if o.dir != "" {
		err = errors.Join(err, os.RemoveAll(o.dir))
	}
	return err
}

// killLeader kills the process of the leader, and starts it again after a while. Without a leader it does
// nothing.
func (o *oracle) killLeader(ctx context.Context) error {
	n, err := o.nodes.Leader(ctx)
	if n == nil || err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	timer := time.NewTimer(downTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return n.Start()
}
