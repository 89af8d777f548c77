//go:build linux

package failover_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestClient_NoCallFailsWhenTheLeaderIsKilled with kill -9.
func TestClient_NoCallFailsWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoad(t, c, 32)
	for range trial.Short(5, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.More(t, 500)
		leader.Kill()
		l.More(t, 500)
		leader.Start()
	}
	l.Verify(t)
}

// TestClient_NoCallFailsWhenTheLeaderIsPaused: SIGSTOP leaves all connections open, and the
// kernel accepts more. When the leader resumes, the client must not use stale answers.
func TestClient_NoCallFailsWhenTheLeaderIsPaused(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoad(t, c, 32)
	for range trial.Short(4, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.More(t, 500)
		leader.Stop()
		l.More(t, 1000)
		leader.Cont()
		l.More(t, 500)
	}
	l.Verify(t)
}

// TestClient_NoCallFailsInARollingRestart: each node is ended by SIGTERM and started
// again, one after the other. CLIENT_ROLLS says how often, with 200 goroutines.
func TestClient_NoCallFailsInARollingRestart(t *testing.T) {
	t.Parallel()
	goroutines := 32
	if os.Getenv("CLIENT_ROLLS") != "" {
		goroutines = 200
	}
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoad(t, c, goroutines)
	for range trial.Number(t, "CLIENT_ROLLS", 1, 1) {
		for _, n := range c.Nodes {
			n.Shutdown()
			n.Start()
			c.WaitReady()
			c.Settle()
			l.More(t, 500)
		}
	}
	l.Verify(t)
}

// TestClient_RecoversAloneWhenAllNodesWereDown: calls with a late deadline succeed after it,
// the others fail at their deadlines.
func TestClient_RecoversAloneWhenAllNodesWereDown(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoadWithin(t, c.Addrs(), 8, time.Second)
	l.More(t, 200)
	c.Kill()
	patient := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*chaos.ReadyTimeout)
		defer cancel()
		_, err := l.Client.Timestamp(ctx)
		patient <- err
	}()
	trial.WantAnswers(t, &l.Expired, 8)
	c.Start()
	if err := <-patient; err != nil {
		t.Errorf("the call with a late deadline: %v", err)
	}
	c.WaitReady()
	l.More(t, 500)
	l.Forgive(isotone.ErrDeadlineExceeded)
	l.Verify(t)
}

// TestClient_IDsNeverRepeat: IDs of all members and of two generators that lease workers,
// while the leader is killed (I9).
func TestClient_IDsNeverRepeat(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoad(t, c, 4)
	ids := trial.StartClientIDs(t, l)
	for range trial.Short(3, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.More(t, 200)
		leader.Kill()
		l.More(t, 500)
		leader.Start()
		c.WaitReady()
	}
	ids.Verify(t)
	l.Verify(t)
}
