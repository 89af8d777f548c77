package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/subprocess"
	"github.com/isotone/isotone/internal/operator"
)

// lockCmd runs a command while it holds a lock.
type lockCmd struct {
	Endpoint         endpointList   `name:"endpoint" placeholder:"HOST:PORT,..." help:"Client addresses of nodes of the cluster, or https URLs; the leader and the other members are found through any of them. Default: localhost:8080, or a node of \"isotone dev\" at ports 8081 to 8083 of 127.0.0.1."`
	Name             string         `arg:"" help:"Name of the lock: 1 to 128 bytes."`
	Command          []string       `arg:"" passthrough:"" help:"The command and its arguments. What follows the command belongs to it; \"--\" may stand before it."`
	TTL              time.Duration  `name:"ttl" default:"3s" help:"The lock is lost after this time without contact to the cluster: 100ms to 1m."`
	Linger           *time.Duration `name:"linger" placeholder:"TIME" help:"The lock is free after this time without a connection, as when this machine has lost its power. Default: as --ttl. With less, two commands may run at the same time for a moment after a connection has broken."`
	Wait             *time.Duration `name:"wait" placeholder:"TIME" help:"Maximum wait for the lock. Default: until it is free."`
	Nonblock         bool           `name:"nonblock" short:"n" help:"Do not wait for the lock."`
	Value            string         `name:"value" help:"What others are told of the holder. Default: the name of this machine and the process ID."`
	KillAfter        time.Duration  `name:"kill-after" default:"500ms" help:"If the lock is about to be lost, the command gets SIGTERM so long before, and SIGKILL if it still runs when it is lost."`
	ConflictExitCode int            `name:"conflict-exit-code" short:"E" default:"75" help:"Exit code if the lock is not free in time."`
	Timeout          time.Duration  `name:"timeout" default:"10s" help:"Maximum wait for a leader of the cluster."`

	accessFlags
}

const (
	// lostExitCode is the exit code if the lock is lost.
	lostExitCode = 76
	// killMargin is how long before the lock is lost its command is killed.
	killMargin = 20 * time.Millisecond
	// lockNoticeAfter is after which a command that waits says for whom.
	lockNoticeAfter = time.Second
	// lockEndWait bounds the release of the lock when the command has ended.
	lockEndWait = 2 * time.Second
)

// check checks the flags.
func (c *lockCmd) check() error {
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	linger := c.TTL
	if c.Linger != nil {
		linger = *c.Linger
	}
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return usagef("want a command to run under the lock: isotone lock %.80q -- command", c.Name)
	case c.Name == "" || len(c.Name) > 128:
		return usagef("the name of a lock has 1 to 128 bytes")
	case c.TTL < 100*time.Millisecond || c.TTL > time.Minute || c.TTL%time.Millisecond != 0:
		return usagef("--ttl %v: want 100ms to 1m, in whole milliseconds", c.TTL)
	case linger <= 0 || linger > time.Minute || linger%time.Millisecond != 0:
		return usagef("--linger %v: want up to 1m, in whole milliseconds", linger)
	case c.KillAfter < 0 || c.KillAfter > c.TTL/2:
		return usagef("--kill-after %v: want at most half of --ttl, which is %v", c.KillAfter, c.TTL)
	case c.Wait != nil && *c.Wait <= 0:
		return usagef("--wait %v: want more than 0, or --nonblock", *c.Wait)
	case c.Wait != nil && c.Nonblock:
		return usagef("--wait and --nonblock exclude each other")
	case c.ConflictExitCode < 0 || c.ConflictExitCode > 255:
		return usagef("--conflict-exit-code %d: want 0 to 255", c.ConflictExitCode)
	case len(c.Value) > 128:
		return usagef("--value: want at most 128 bytes")
	case c.Timeout <= 0:
		return usagef("--timeout %v: want more than 0", c.Timeout)
	}
	return nil
}

// Run acquires the lock, runs the command and releases the lock.
func (c *lockCmd) Run(ctx context.Context, con console) error {
	if err := c.check(); err != nil {
		return err
	}
	cl, err := dialClient(ctx, c.accessFlags, c.Endpoint, c.Timeout)
	if err != nil {
		return err
	}
	defer cl.Close()
	o := client.SessionOptions{TTL: c.TTL}
	if c.Linger != nil {
		o.Linger = *c.Linger
	}
	starting, cancel := context.WithTimeout(ctx, c.Timeout)
	s, err := cl.NewSession(starting, o)
	cancel()
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), lockEndWait)
		defer cancel()
		_ = s.Close(ending) // otherwise the cluster ends it after its TTL
	}()
	if c.Value == "" {
		host, _ := os.Hostname()
		c.Value = fmt.Sprintf("%.100s:%d", host, os.Getpid())
	}
	m := s.Mutex(c.Name).WithValue(c.Value)
	if err := c.acquire(ctx, con, cl, m); err != nil {
		return err
	}
	return c.run(con, s, m)
}

// dialClient connects to a cluster, as its clients do, within timeout.
func dialClient(ctx context.Context, flags accessFlags, named endpointList, timeout time.Duration) (*client.Client, error) {
	reach, err := flags.open()
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		addr, err := operator.FindNode(ctx, reach, operator.LikelyNodes(operator.DefaultAddr))
		if err != nil {
			return nil, fmt.Errorf("%w with --endpoint", err)
		}
		named = endpointList{addr}
	}
	if slices.ContainsFunc(named, func(addr string) bool { return strings.HasPrefix(addr, operator.UnixScheme) }) {
		return nil, usagef("--endpoint: want client addresses, as locks and frontiers are not served at the socket of operators")
	}
	bases, err := reach.URLs("--endpoint", named)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cl, err := client.NewWith(starting, reach.ClientOptions(bases))
	return cl, interrupted(ctx, err)
}

// interrupted returns why ctx is done in place of what follows from that.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// acquire acquires the lock, and says for whom it waits.
func (c *lockCmd) acquire(ctx context.Context, con console, cl *client.Client, m *client.Mutex) error {
	waiting, lock := ctx, m.Lock
	if c.Nonblock {
		lock = m.TryLock
	}
	if c.Wait != nil {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, *c.Wait)
		defer cancel()
	}
	asking, stop := context.WithCancel(waiting)
	notice := time.AfterFunc(lockNoticeAfter, func() {
		if h, err := cl.Holder(asking, c.Name); err == nil && asking.Err() == nil {
			con.tell(fmt.Sprintf("isotone: waiting for the lock %q%s", c.Name, heldBy(h)))
		}
	})
	_, err := lock(waiting)
	notice.Stop()
	stop()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, isotone.ErrLocked) && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	asking, stop = context.WithTimeout(ctx, c.Timeout)
	defer stop()
	h, _ := cl.Holder(asking, c.Name) // to say who has it
	return exitCode{c.ConflictExitCode, fmt.Errorf("the lock %q is not free%s", c.Name, heldBy(h))}
}

// heldBy describes a holder, "" for nobody.
func heldBy(h client.Holder) string {
	switch {
	case h.Token == 0:
		return ""
	case h.Value == "":
		return fmt.Sprintf(", held with token %d", h.Token)
	}
	return fmt.Sprintf(", held by %q with token %d", h.Value, h.Token)
}

// run runs the command until it ends, or the lock is about to be lost.
func (c *lockCmd) run(con console, s *client.Session, m *client.Mutex) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	token := m.Token64()
	p, err := subprocess.Start(c.Command, []string{
		"ISOTONE_LOCK_NAME=" + c.Name, "ISOTONE_LOCK_TOKEN=" + token.Timestamp().String(), "ISOTONE_LOCK_TOKEN64=" + strconv.FormatUint(uint64(token), 10),
	})
	if err != nil {
		return exitCode{startExitCode(err), fmt.Errorf("the command does not start: %w", err)}
	}
	lost, ending := false, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.Done():
			if lost || m.Check() != nil {
				return exitCode{lostExitCode, fmt.Errorf("the lock %q was lost while the command ran; it was told to end before", c.Name)}
			}
			return exitOf(p.Code())
		case sig := <-signals:
			_ = p.Signal(sig) // it may have ended
		case <-timer.C:
			rest := s.ValidFor()
			if m.Check() != nil {
				rest = 0 // an operator has taken it
			}
			switch {
			case rest <= killMargin:
				lost = true
				_ = p.Kill()
				timer.Reset(time.Second) // it ends now
			case rest <= c.KillAfter && !ending:
				lost, ending = true, true
				con.tell(fmt.Sprintf("isotone: the lock %q is about to be lost: the cluster has not confirmed it for %v; ending the command", c.Name, c.TTL-rest))
				_ = p.Signal(syscall.SIGTERM)
				timer.Reset(rest - killMargin)
			case ending:
				timer.Reset(rest - killMargin)
			default:
				timer.Reset(min(rest-c.KillAfter, lockLook))
			}
		}
	}
}

// startExitCode is that of shells: 127 for a command that is not found, and otherwise 126.
func startExitCode(err error) int {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return 127
	}
	return 126
}

// lockLook is how often the lock is looked at: an operator may take it at any time.
const lockLook = 100 * time.Millisecond

// exitOf has isotone exit with the code of the command.
func exitOf(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode{code: code}
}
