package main

import (
	"context"
	"errors"
	"fmt"

	pd "github.com/tikv/pd/client"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// system is something that issues timestamps.
type system struct {
	name string
	next func(context.Context) (isotone.Timestamp64, error)
	// begin requests a timestamp, and returns what waits for it.
	begin func(context.Context) (wait func() (isotone.Timestamp64, error))
	end   func() error
}

func (s *system) close() { _ = s.end() }

// connect returns the systems that flags name, in the order in which they take turns, also after an
// error.
func (c *command) connect(ctx context.Context) (list []*system, err error) {
	for _, s := range []struct {
		name    string
		addrs   []string
		connect func(context.Context, string, []string) (*system, error)
	}{
		{"PD", c.PD, connectPD},
		{"PD_PORT, lease", c.NodeLease, connectPD}, {"PD_PORT, quorum", c.NodeQuorum, connectPD},
		{"isotone-pd, lease", c.Lease, connectPD}, {"isotone-pd, quorum", c.Quorum, connectPD},
		{"Isotone, lease", c.Isotone, connectIsotone(isotone.ReadLease)}, {"Isotone, quorum", c.Isotone, connectIsotone(isotone.ReadQuorum)},
	} {
		if len(s.addrs) == 0 {
			continue
		}
		made, err := s.connect(ctx, s.name, s.addrs)
		if err != nil {
			return list, fmt.Errorf("%s: %w", s.name, err)
		}
		list = append(list, made)
	}
	return list, nil
}

func connectPD(ctx context.Context, name string, addrs []string) (*system, error) {
	c, err := pd.NewClientWithContext(ctx, urls(addrs), pd.SecurityOption{})
	if err != nil {
		return nil, err
	}
	next := func(ctx context.Context) (isotone.Timestamp64, error) { return timestampOf(c.GetTS(ctx)) }
	begin := func(ctx context.Context) func() (isotone.Timestamp64, error) {
		future := c.GetTSAsync(ctx)
		return func() (isotone.Timestamp64, error) { return timestampOf(future.Wait()) }
	}
	return &system{name, next, begin, func() error { c.Close(); return nil }}, nil
}

// timestampOf returns the timestamp in an answer of PD's client.
func timestampOf(physical, logical int64, err error) (isotone.Timestamp64, error) {
	if err != nil {
		return 0, err
	}
	if physical < 0 || logical < 0 || logical >= isotone.Range64CountMax {
		return 0, fmt.Errorf("the timestamp (%d, %d) is invalid", physical, logical)
	}
	return isotone.NewTimestamp64(uint64(physical), uint64(logical)), nil
}

func connectIsotone(mode isotone.ReadMode) func(context.Context, string, []string) (*system, error) {
	return func(ctx context.Context, name string, addrs []string) (*system, error) {
		c, err := client.NewWith(ctx, client.Options{Addrs: addrs, Mode: mode})
		if err != nil {
			return nil, err
		}
		begin := func(ctx context.Context) func() (isotone.Timestamp64, error) {
			future := c.Timestamp64Async(ctx)
			return future.Wait
		}
		return &system{name, c.Timestamp64, begin, c.Close}, nil
	}
}

// errOrder is a timestamp that is not above the caller's previous one.
var errOrder = errors.New("a timestamp is not larger than an earlier one")
