package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// TestDirect_ADeadlineCostsItsConnectionAndNothingElse: the answer may still arrive, and the
// next call must not get it.
func TestDirect_ADeadlineCostsItsConnectionAndNothingElse(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	pings := func() int { return f.nodes[0].count("PING") }
	connected(t, c, client.ConnsDefault)
	wantTimestamp(t, c)
	before := pings()
	gate := make(chan struct{})
	var first atomic.Bool
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" && !first.Swap(true) {
			<-gate
		}
		return nil, false
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Timestamp(ctx); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Errorf("without an answer: %v", err)
	}
	close(gate)
	wantTimestamp(t, c)
	await.Until(t, "its successor", func() bool { return pings() == before+1 })
	for range 10 {
		wantTimestamp(t, c)
	}
}

// TestDirect_OthersDoNotWaitForIt: a direct call that hangs does not delay others.
func TestDirect_OthersDoNotWaitForIt(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	connected(t, c, client.ConnsDefault)
	gate := make(chan struct{})
	var first atomic.Bool
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" && !first.Swap(true) {
			<-gate
		}
		return nil, false
	})
	hung := make(chan error, 1)
	go func() {
		_, err := c.Timestamp(context.Background())
		hung <- err
	}()
	await.Until(t, "it is under way", func() bool { return f.nodes[0].count("TS") == 1 })
	ctx := soon(t)
	for range 20 {
		if _, err := c.Timestamp(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if err := receive(t, hung); err != nil {
		t.Error(err)
	}
}
