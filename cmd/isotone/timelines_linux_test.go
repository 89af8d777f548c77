package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// asker asks for one timeline all the time, by one client after the other, and checks the order of its answers.
type asker struct {
	name  string
	check *lincheck.Online
	got   atomic.Int64
}

func (a *asker) run(ctx context.Context, t *testing.T, addrs []string) {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for at := 0; ctx.Err() == nil; {
		floor := a.check.Begin()
		r, err := stampOf(ctx, &c, addrs[at], a.name)
		if err != nil { // another may lead
			at = (at + 1) % len(addrs)
			continue
		}
		if err := a.check.End(floor, r); err != nil {
			t.Errorf("timeline %s: %v", a.name, err)
			return
		}
		a.got.Add(1)
	}
}

func stampOf(ctx context.Context, c *http.Client, addr, timeline string) (r isotone.Range, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/timestamp?format=range&n=3&timeline="+timeline, nil)
	if err != nil {
		return r, err
	}
	resp, err := c.Do(q)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || len(body) < isotone.TimestampSize {
		return r, fmt.Errorf("%s: %q, %w", resp.Status, body, err)
	}
	return isotone.Range{First: isotone.Timestamp{Time: binary.BigEndian.Uint64(body), Index: binary.BigEndian.Uint64(body[8:])}, Count: 3}, nil
}

// TestTimelines_GoOnWhenTheirLeaderIsKilled, and when it is started again; and one that is deleted and created again goes on above.
func TestTimelines_GoOnWhenTheirLeaderIsKilled(t *testing.T) {
	t.Parallel()
	c := startProcessCluster(t, "TIMELINES=1")
	nodes := strings.Join(c.Addrs(), ",")
	does := func(args ...string) {
		t.Helper()
		wantRun(t, 0, "", "", append(append([]string{"timeline"}, args...), "--yes", "--timeout", "3m", "--endpoint", nodes)...)
	}
	does("create", "a", "b")
	askers := []*asker{{name: "a", check: lincheck.NewOnline(0)}, {name: "b", check: lincheck.NewOnline(0)}}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	t.Cleanup(func() { cancel(); asking.Wait() })
	for _, a := range askers {
		for range 3 {
			asking.Go(func() { a.run(ctx, t, c.Addrs()) })
		}
	}
	goOn := func(when string) {
		t.Helper()
		for _, a := range askers {
			from := a.got.Load()
			await.Until(t, when+", timeline "+a.name+" goes on", func() bool { return a.got.Load() > from+100 || t.Failed() })
		}
	}
	for range 3 {
		goOn("at first")
		var leader *cluster.Node
		await.Until(t, "there is a leader", func() bool { leader, _ = c.Leader(t.Context()); return leader != nil && leader.Running() })
		if err := leader.Kill(); err != nil {
			t.Fatal(err)
		}
		goOn("without its leader")
		if err := leader.Start(); err != nil {
			t.Fatal(err)
		}
		goOn("with it again")
	}
	for range 2 {
		does("delete", "a")
		does("create", "a")
		goOn("created again")
	}
}

// startProcessCluster runs a cluster of three processes with these settings until the test ends, and returns it when it is ready.
func startProcessCluster(t *testing.T, settings ...string) *cluster.Cluster {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(3, t.TempDir(), []string{path}, append([]string{asCommand + "=1"}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	return c
}
