package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/server"
)

// devReadyTimeout bounds the wait for the first leader.
const devReadyTimeout = time.Minute

// The bounds of --interval-ms, other than 0: those of INTERVAL_MS with the default of RTT_MS.
const (
	devIntervalMSMin = 50
	devIntervalMSMax = 10_000
)

type devCmd struct {
	Port       int    `name:"port" default:"8081" help:"Client port of the first node; the other two use the next ports."`
	DataDir    string `name:"data-dir" placeholder:"DIR" complete:"dirs" help:"Directory for the data. Default: a temporary one, removed on exit."`
	IntervalMS int    `name:"interval-ms" default:"0" help:"How long an interval of the cluster clock may be used after the leader was last confirmed, in milliseconds: 50 to 10000. 0: there are no intervals."`
	Live       string `name:"live" placeholder:"NAME=SOURCE,..." help:"Live documents under /live/NAME of every node, as of isotone serve: from file:PATH, redis://host:port/db#key, or an http or https URL."`
	Forward    bool   `name:"forward" default:"true" negatable:"" help:"Nodes that do not lead pass requests for timestamps on to the leader. Default: yes; with --no-forward they name it, as isotone serve does."`
	Open       bool   `name:"open" help:"Open the dashboard in the browser as soon as all nodes are ready."`
	Debug      bool   `name:"debug" help:"Show the logs of the nodes."`
}

// Run runs three nodes until a signal or a failure ends it.
func (c *devCmd) Run(ctx context.Context, con console) (err error) {
	if c.Port < 1 || c.Port > 65535-operator.DevNodes+1 {
		return usagef("--port %d: want 1 to %d", c.Port, 65535-operator.DevNodes+1)
	}
	if c.IntervalMS != 0 && (c.IntervalMS < devIntervalMSMin || c.IntervalMS > devIntervalMSMax) {
		return usagef("--interval-ms %d: want 0, or %d to %d", c.IntervalMS, devIntervalMSMin, devIntervalMSMax)
	}
	common, err := c.settings()
	if err != nil {
		return err
	}
	dir := c.DataDir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "isotone-dev-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	logs := io.Discard
	if c.Debug {
		logs = con.err
	}
	log := startLog(logs, telemetry.LogOptions{Pretty: true})
	defer log.Close()
	documents := log
	if !c.Debug { // whoever gave documents wants to know of them all the same, once
		documents = telemetry.StartLog(con.err, telemetry.LogOptions{Pretty: true})
		defer documents.Close()
	}
	members, err := startDev(common, c.Port, dir, log.Logger, documents.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopDev(members)) }()
	if err := waitForLeader(ctx, members); err != nil || ctx.Err() != nil {
		return err
	}
	leadFirst(ctx, members)
	view := viewDev(members, dir, &common)
	if err := view.write(con.out, colored(con.out)); err != nil {
		return err
	}
	if c.Open {
		// The nodes serve all the same: the error has the address to open.
		if err := openBrowser(view.dashboard()); err != nil {
			fmt.Fprintln(con.err, err)
		}
	}
	return waitAll(ctx, members, log.Logger)
}

// settings returns what all nodes have in common.
func (c *devCmd) settings() (s config.Settings, err error) {
	s = config.Default()
	s.Interval, s.Forward, s.Timelines = time.Duration(c.IntervalMS)*time.Millisecond, c.Forward, true
	if s.Live, err = live.Parse(c.Live); err != nil {
		return s, usagef("--live: %v", err)
	}
	return s, nil
}

// startDev starts all nodes with common settings. Peer ports are any free ones, so only client ports can be in use
// already. The documents of the first node log to documents.
func startDev(common config.Settings, port int, dir string, log, documents *slog.Logger) (members []*server.Member, err error) {
	var free []server.Sockets // those that no member has taken over
	var settings []config.Settings
	defer func() {
		if err == nil {
			return
		}
		for _, so := range free {
			err = errors.Join(err, so.Close())
		}
		err = errors.Join(err, stopDev(members))
		members = nil
	}()
	peers := map[uint64]string{}
	for i := range operator.DevNodes {
		s := common
		s.NodeID = uint64(i + 1)
		s.HTTPHost, s.HTTPPort = "127.0.0.1", port+i
		s.AdvertiseAddr = s.HTTPAddr()
		s.RaftAddr = "127.0.0.1:0"
		s.DataDir = filepath.Join(dir, fmt.Sprintf("node%d", i+1))
		so, err := server.Listen(&s)
		if err != nil {
			return nil, fmt.Errorf("%w (is another \"isotone dev\" running? --port takes other ports)", err)
		}
		free, settings = append(free, so), append(settings, s)
		peers[s.NodeID] = so.Peer.Addr().String()
	}
	for i := range settings {
		settings[i].Peers = peers
		so := free[0]
		free = free[1:]
		options := server.Options{Version: version, Loops: 1}
		if i == 0 {
			options.Documents = documents
		}
		m, err := server.Start(&settings[i], so, options, log)
		if err != nil {
			return members, err
		}
		members = append(members, m)
	}
	return members, nil
}

// stopDev closes all members at once: none is left to transfer leadership to.
func stopDev(members []*server.Member) error {
	errs := make(chan error, len(members))
	for _, m := range members {
		go func() { errs <- m.Close() }()
	}
	var err error
	for range members {
		err = errors.Join(err, <-errs)
	}
	return err
}

// waitForLeader returns when all members are ready and make IDs, or ctx is done.
func waitForLeader(ctx context.Context, members []*server.Member) error {
	deadline := time.NewTimer(devReadyTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		waiting := ""
		for _, m := range members {
			if why := m.Node.Status().NotReady; why != "" {
				waiting = why
			} else if _, _, err := m.Node.IDs(-1).Worker(); err != nil {
				waiting = err.Error()
			}
		}
		if waiting == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-deadline.C:
			return fmt.Errorf("the nodes found no leader in %v: %s", devReadyTimeout, waiting)
		case <-poll.C:
		}
	}
}

// leadFirst makes the first node the leader, so that the commands in docs/start.md work as
// they stand. If that fails, another one leads, and the printed commands name it.
func leadFirst(ctx context.Context, members []*server.Member) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		leader := members[0].Node.Status().Leader
		if leader == 1 {
			break
		}
		if leader == 0 || members[leader-1].Node.TransferLeadership(ctx) != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	_ = waitForLeader(ctx, members)
}

// waitAll returns nil when ctx is done or all members were drained, or the error of the first
// member that fails. One that was asked to drain ends without the others.
func waitAll(ctx context.Context, members []*server.Member, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(members))
	for _, m := range members {
		go func() {
			err := m.Wait(ctx)
			if err == nil && ctx.Err() == nil {
				err = m.Stop(log)
			}
			errs <- err
		}()
	}
	for range members {
		if err := <-errs; err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}
