package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/timeline"
)

// oracleUsers ask the oracle of reads and writes of a timeline, and note what they are answered.
type oracleUsers struct {
	epoch   time.Time
	mu      sync.Mutex
	history []lincheck.ReadWrite
	got     [3]atomic.Int64 // by the way of asking
}

// askOracle asks for an operation, in a way of its own.
type askOracle func(ctx context.Context, op timeline.Op, at uint64) (ms uint64, err error)

// run has a user write and apply that, read, and peek, all the time.
func (u *oracleUsers) run(ctx context.Context, way int, ask askOracle) {
	written := uint64(0)
	for i := 0; ctx.Err() == nil; i++ {
		o := lincheck.ReadWrite{Client: uint64(way), Op: timeline.OpWrite + timeline.Op(i%4), Invocation: int64(time.Since(u.epoch))}
		if o.Op == timeline.OpApply {
			o.At = written
		}
		ms, err := ask(ctx, o.Op, o.At)
		if err != nil { // while its group moves
			continue
		}
		if o.Op == timeline.OpWrite {
			written = ms
		}
		o.Time, o.Completion, o.Answered = ms, int64(time.Since(u.epoch)), true
		u.mu.Lock()
		u.history = append(u.history, o)
		u.mu.Unlock()
		u.got[way].Add(1)
	}
}

func (u *oracleUsers) check(t *testing.T, when string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := lincheck.CheckReadWrite(u.history); err != nil {
		t.Fatalf("%s, after %d operations: %v", when, len(u.history), err)
	}
}

// byHTTP asks one node after the other until one answers.
func byHTTP(name string, addrs []string) askOracle {
	c, at := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, 0
	return func(ctx context.Context, op timeline.Op, apply uint64) (uint64, error) {
		url := fmt.Sprintf("http://%s/oracle?timeline=%s&op=%v", addrs[at], name, op)
		if op == timeline.OpApply {
			url += fmt.Sprint("&at=", apply)
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		a, err := c.Do(q)
		if err == nil {
			defer a.Body.Close()
		}
		if err != nil || a.StatusCode != http.StatusOK {
			at = (at + 1) % len(addrs)
			return 0, fmt.Errorf("%v", err)
		}
		var answer struct{ MS uint64 }
		err = json.NewDecoder(a.Body).Decode(&answer)
		return answer.MS, err
	}
}

// TestReadWrite_IsOneOracleWhoeverOwnsIt: the Go client, a client of Redis Cluster and HTTP use it while its group moves between three nodes, and
// while its owner is killed.
func TestReadWrite_IsOneOracleWhoeverOwnsIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"orders", "apart"} { // in the group of its slot, and in another
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isOneOracle(t, name)
		})
	}
}

func isOneOracle(t *testing.T, name string) {
	s := newSlotCluster(t, "timelines")
	own, err := client.NewWith(t.Context(), client.Options{Addrs: s.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	byRedis := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), MaxRedirects: 8, ClusterStateReloadInterval: 100 * time.Millisecond}) // a minute by itself
	defer byRedis.Close()
	oracle := own.Timeline(name).ReadWrite()
	users := &oracleUsers{epoch: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer func() { cancel(); asking.Wait() }()
	for way, ask := range []askOracle{
		func(ctx context.Context, op timeline.Op, at uint64) (uint64, error) {
			switch op {
			case timeline.OpWrite:
				return oracle.Write(ctx)
			case timeline.OpPeek:
				return oracle.Peek(ctx)
			case timeline.OpRead:
				return oracle.Read(ctx)
			}
			return oracle.Apply(ctx, at)
		},
		func(ctx context.Context, op timeline.Op, at uint64) (uint64, error) {
			args := []any{"ORACLE", name, strings.ToUpper(op.String())}
			if op == timeline.OpApply {
				args = append(args, at)
			}
			return byRedis.Do(ctx, args...).Uint64()
		},
		byHTTP(name, s.Addrs()),
	} {
		asking.Go(func() { users.run(ctx, way, ask) })
	}
	goOn := func(when string) {
		t.Helper()
		for way := range users.got {
			from := users.got[way].Load()
			await.Until(t, fmt.Sprintf("%s, way %d goes on", when, way), func() bool { return users.got[way].Load() > from+20 })
		}
		users.check(t, when)
	}
	for round := range 6 {
		s.move(name, round%3+1)
		goOn("after a move")
	}
	for node := range 3 {
		s.move(name, node+1)
		if err := s.Nodes[node].Kill(); err != nil {
			t.Fatal(err)
		}
		goOn("without its owner")
		if err := s.Nodes[node].Start(); err != nil {
			t.Fatal(err)
		}
		goOn("with it again")
	}
}
