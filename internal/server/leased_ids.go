package server

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/snowflake"
)

// leasedIDs makes ids as soon as there is a worker for them.
type leasedIDs struct {
	generator atomic.Pointer[client.Generator]
	cancel    context.CancelFunc
	leasing   sync.WaitGroup
	log       *slog.Logger
}

// leaseRetry is the pause between two attempts to lease the first worker.
const leaseRetry = time.Second

func leaseIDs(c *client.Client, log *slog.Logger) *leasedIDs {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leasedIDs{cancel: cancel, log: log}
	l.leasing.Go(func() {
		for ctx.Err() == nil {
			g, err := c.NewGenerator(ctx, client.GeneratorOptions{})
			if err == nil {
				l.generator.Store(g)
				log.Info("making ids", "worker", g.Worker())
				return
			}
			if ctx.Err() == nil {
				log.Warn("no worker for ids yet", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(leaseRetry):
			}
		}
	})
	return l
}

var errNoWorker = isotone.Errorf(isotone.CodeNoWorker, "the cluster has leased no worker yet")

// Fill implements front.IDs.
func (l *leasedIDs) Fill(dst []snowflake.ID) error {
	g := l.generator.Load()
	if g == nil {
		return errNoWorker
	}
	return g.TryFill(dst)
}

// Worker implements front.IDs.
func (l *leasedIDs) Worker() (int, snowflake.Layout, error) {
	g := l.generator.Load()
	if g == nil {
		return 0, snowflake.Layout{}, errNoWorker
	}
	return g.Worker(), g.Layout(), nil
}

func (l *leasedIDs) close() {
	l.cancel()
	l.leasing.Wait()
	if g := l.generator.Load(); g != nil {
		if err := g.Close(); err != nil {
			l.log.Debug("the worker was not given back", "err", err)
		}
	}
}
