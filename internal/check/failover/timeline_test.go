//go:build linux

package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// lineLoad calls for one timeline, or the default order with "", and checks the order of its answers.
type lineLoad struct {
	name     string
	online   *lincheck.Online
	answered atomic.Int64
}

// lineLoads are those of one client.
type lineLoads struct {
	c     *chaos.Cluster
	list  []*lineLoad
	calls sync.WaitGroup
}

func startLineLoads(t *testing.T, c *chaos.Cluster, names ...string) *lineLoads {
	t.Helper()
	l := &lineLoads{c: c}
	ctx, stop := context.WithCancel(context.Background())
	from, err := client.NewWith(ctx, client.Options{Addrs: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); l.calls.Wait(); _ = from.Close() })
	for _, name := range names {
		load := &lineLoad{name: name, online: lincheck.NewOnline(0)}
		l.list = append(l.list, load)
		for i := range 8 {
			l.calls.Go(func() { load.run(ctx, t, from, uint64(i)) })
		}
	}
	return l
}

func (l *lineLoad) run(ctx context.Context, t *testing.T, from *client.Client, id uint64) {
	r := from.In(isotone.ReadDefault)
	if l.name != "" {
		r = from.Timeline(l.name)
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, trial.CallDeadline())
		floor := l.online.Begin()
		got, err := r.Timestamps(call, 1+id%3)
		cancel()
		if err == nil {
			l.answered.Add(1)
			err = l.online.End(floor, got)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("timeline %q: %v", l.name, err)
			return
		}
		time.Sleep(4 * time.Millisecond) // for the nodes
	}
}

// more waits for further answers of each.
func (l *lineLoads) more(t *testing.T) {
	t.Helper()
	for _, load := range l.list {
		from := load.answered.Load()
		await.Until(t, fmt.Sprintf("timeline %q goes on", load.name), func() bool { return load.answered.Load() > from+50 || t.Failed() })
	}
}

// operate runs a command of operators until it succeeds: a leader may just be gone.
func (l *lineLoads) operate(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	args = append(args, "--endpoint", strings.Join(l.c.Addrs(), ","))
	await.Done(t, await.Timeout, func() (bool, string) {
		code, out, text := trial.Command(t, args...)
		stdout = out
		return code == 0, text
	})
	return stdout
}

// TestClient_TimelinesGoOnWhateverNodeEnds: those of three owners, which are moved, killed and paused, as the leader is.
func TestClient_TimelinesGoOnWhateverNodeEnds(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"TIMELINES": "1"}
	c := chaos.StartCluster(t, o)
	c.WaitReady()
	names := []string{"one", "two", "three"}
	l := &lineLoads{c: c}
	for _, name := range names {
		l.operate(t, "group", "create", "of-"+name, "--yes")
		l.operate(t, "timeline", "create", name, "--group", "of-"+name, "--yes")
	}
	spread := func() {
		t.Helper()
		c.Settle()
		for i, name := range names {
			l.operate(t, "group", "move", "of-"+name, fmt.Sprint(i+1), "--yes")
		}
	}
	spread()
	l = startLineLoads(t, c, append(names, "")...)
	for round := range trial.Short(3, 1) {
		l.more(t)
		owner := c.Nodes[round%3] // of one timeline, and perhaps the leader
		owner.Kill()
		l.more(t)
		owner.Start()
		spread()
		l.more(t)
		leader := c.WaitLeader()
		leader.Stop()
		l.more(t)
		leader.Cont()
		l.more(t)
		spread()
		leader = c.WaitLeader()
		leader.Kill()
		l.more(t)
		leader.Start()
		spread()
		l.operate(t, "group", "move", "of-one", fmt.Sprint(2+round%2), "--yes")
		l.more(t)
	}
	for _, load := range l.list {
		if s := load.online.Stats(); s.Violations > 0 || s.Unverified > 0 {
			t.Errorf("timeline %q: %+v", load.name, s)
		}
	}
}
