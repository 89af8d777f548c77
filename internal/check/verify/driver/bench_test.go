//go:build linux

package driver_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// counting is a system in the driver itself.
type counting struct{ last atomic.Uint64 }

func (*counting) Hello(map[string]string) (driver.Hello, error) {
	return driver.Hello{System: "counting", Version: "1", Promises: "real-time", CountMax: 100, NodesMax: 3}, nil
}

func (*counting) Plan(driver.PlanRequest, map[string]string) (driver.Plan, error) {
	return driver.Plan{}, driver.Errorf(driver.Invalid, "it has no nodes")
}

func (*counting) Connect([]string, map[string]string) error { return nil }

func (*counting) Ready(node int, _ time.Time) error {
	if node == 2 {
		return driver.Errorf(driver.Unavailable, "never")
	}
	return nil
}

func (c *counting) Ask(node int, count uint64, _ time.Time) (isotone.Timestamp, error) {
	if node == 1 && c.last.Load() >= 5 {
		return isotone.Timestamp{}, driver.Errorf(driver.Malformed, "five %q", `"`)
	}
	return isotone.Timestamp{Time: 1 << 60, Index: c.last.Add(count) - count + 1}, nil
}

func (*counting) Close() {}

// BenchmarkAsk measures the protocol: a number from a driver that has it already. Redis has a system call or two a number.
func BenchmarkAsk(b *testing.B) {
	p, err := driver.Start("counting", filepath.Join(b.TempDir(), "log"), strings.Fields("env "+asDriver+"=counting "+self))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	ctx := context.Background()
	if _, err := p.Hello(ctx, nil); err != nil {
		b.Fatal(err)
	}
	if err := p.Connect(ctx, []string{"a"}, nil); err != nil {
		b.Fatal(err)
	}
	const clients, times = 16, 64
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for left.Add(-times) > -times {
				if _, err := p.Ask(ctx, driver.AskRequest{Client: client, Count: 1, Times: times, Timeout: time.Second}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
