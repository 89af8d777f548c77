package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

func TestTimeline_BadNamesAndTooManyAreErrorsOfCalls(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	for _, name := range []string{"", "a b", "ü", strings.Repeat("a", 65), "a\r\nPING"} {
		r := c.Timeline(name)
		_, err := r.Timestamp(t.Context())
		_, err2 := r.Timestamps64(t.Context(), 3)
		future := r.In(isotone.ReadLease).Above(isotone.Timestamp{Time: 1}).TimestampAsync(t.Context())
		_, err3 := future.Wait()
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, isotone.ErrInvalidArgument) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for i := range client.TimelinesMax {
		c.Timeline(fmt.Sprint(i))
	}
	if _, err := c.Timeline("one-more").Timestamp(t.Context()); !errors.Is(err, isotone.ErrOverloaded) || !strings.Contains(err.Error(), "use another client") {
		t.Errorf("one more: %v", err)
	}
	f.create(0, "0")
	next(t, c.Timeline("0"))
}

// TestTimeline_NamesOfNoneMakeRoom for others, and one that was answered does not.
func TestTimeline_NamesOfNoneMakeRoom(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a", "b")
	c := f.dial(client.Options{})
	a := c.Timeline("a")
	next(t, a)
	deleted := c.Timeline("deleted")
	f.create(1, "deleted")
	next(t, deleted)
	f.change(func() { delete(f.lines, "deleted") })
	if _, err := deleted.Timestamp(within(t, 20*time.Second)); !errors.Is(err, isotone.ErrNotFound) {
		t.Errorf("a timeline that was deleted: %v", err)
	}
	old := c.Timeline("0")
	for i := range client.TimelinesMax + 10 {
		if _, err := c.Timeline(fmt.Sprint(i)).Timestamp(within(t, 20*time.Second)); !errors.Is(err, isotone.ErrNotFound) {
			t.Fatalf("name %d: %v", i, err)
		}
	}
	f.create(1, "0")
	next(t, c.Timeline("b"))
	next(t, a)
	next(t, c.Timeline("0"))
	if _, err := deleted.Timestamp(within(t, 20*time.Second)); !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), "there is no timeline") {
		t.Errorf("a timeline that was answered before is forgotten: %v", err)
	}
	_, err := old.Timestamp(t.Context())
	_, err2 := old.Above(isotone.Timestamp{Time: 1}).Timestamps(t.Context(), 2)
	for _, err := range []error{err, err2} {
		if !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), "has made room") {
			t.Errorf("a reader of a name that was forgotten: %v", err)
		}
	}
	_ = c.Close()
	if _, err := old.Timestamp(t.Context()); err == nil {
		t.Error("it is answered after the end of the client")
	}
}

// TestTimeline_OneOverItsQuotaDelaysNoOther of its owner, and waits for as long as the node asks.
func TestTimeline_OneOverItsQuotaDelaysNoOther(t *testing.T) {
	f := startCluster(t, 2)
	f.create(1, "a", "b")
	c := f.dial(client.Options{Conns: 1})
	next(t, c.Timeline("b"))
	next(t, c.Timeline("a"))
	f.nodes[1].replies(func(args []string) ([]byte, bool) {
		return []byte("-QUOTA 1 a second; retry after 10000 ms\r\n"), strings.HasSuffix(strings.Join(args, " "), "TIMELINE a")
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := c.Timeline("a").Timestamp(ctx); ended <- err }()
	await.Until(t, "it is refused", func() bool { return len(timelineCommands(f.nodes[1], "a")) == 2 })
	for range 20 {
		next(t, c.Timeline("b"))
	}
	if n := len(timelineCommands(f.nodes[1], "a")); n != 2 {
		t.Errorf("the timeline was asked %d times more within its pause", n-2)
	}
	cancel()
	if err := receive(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
