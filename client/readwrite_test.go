package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

func TestReadWrite_AsksTheOwner(t *testing.T) {
	for _, name := range []string{"a", "apart"} {
		t.Run(name, func(t *testing.T) { asksTheOwner(t, name) })
	}
}

func asksTheOwner(t *testing.T, name string) {
	f := startCluster(t, 3)
	f.create(2, name)
	c := f.dial(client.Options{})
	ctx := within(t, 20*time.Second)
	oracle := c.Timeline(name).ReadWrite()
	for i, ask := range []func() (uint64, error){
		func() (uint64, error) { return oracle.Write(ctx) },
		func() (uint64, error) { return oracle.Peek(ctx) },
		func() (uint64, error) { return oracle.Read(ctx) },
		func() (uint64, error) { return oracle.Apply(ctx, 4) },
		func() (uint64, error) { return c.Timeline(name).In(isotone.ReadLease).ReadWrite().Read(ctx) },
	} {
		if got, err := ask(); err != nil || got != uint64(i+1) {
			t.Errorf("operation %d: %d, %v", i, got, err)
		}
	}
	say := "ORACLE " + name
	if got := f.nodes[2].commands("ORACLE"); !slices.Equal(got[len(got)-4:], []string{say + " PEEK", say + " READ", say + " APPLY 4", say + " READ lease"}) {
		t.Errorf("the owner was asked %q", got)
	}
	f.grant(0, name)
	if got, err := oracle.Write(ctx); err != nil || got != 6 {
		t.Errorf("after a change of owners: %d, %v", got, err)
	}
}

func TestReadWrite_SharesNoRequests(t *testing.T) {
	f := startCluster(t, 3)
	f.create(1, "a")
	c := f.dial(client.Options{})
	ctx := within(t, 20*time.Second)
	var calls sync.WaitGroup
	var mu sync.Mutex
	got := map[uint64]bool{}
	for range 100 {
		calls.Go(func() {
			ms, err := c.Timeline("a").ReadWrite().Write(ctx)
			ts, also := c.Timeline("a").Timestamp(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || also != nil || got[ms] || ts == (isotone.Timestamp{}) {
				t.Errorf("%d, %v; %v, %v", ms, err, ts, also)
			}
			got[ms] = true
		})
	}
	calls.Wait()
}

func TestReadWrite_Fails(t *testing.T) {
	f := startCluster(t, 1)
	f.create(0, "a")
	c := f.dial(client.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, fails := range map[string]struct {
		oracle client.ReadWrite
		ctx    context.Context
		want   error
	}{
		"of the default order":   {c.In(isotone.ReadQuorum).ReadWrite(), t.Context(), isotone.ErrInvalidArgument},
		"of an unknown mode":     {c.Timeline("a").In(9).ReadWrite(), t.Context(), isotone.ErrInvalidArgument},
		"of a malformed name":    {c.Timeline("a b").ReadWrite(), t.Context(), isotone.ErrInvalidArgument},
		"of no timeline":         {c.Timeline("b").ReadWrite(), t.Context(), isotone.ErrNotFound},
		"when it is called late": {c.Timeline("a").ReadWrite(), ended, context.Canceled},
	} {
		if _, err := fails.oracle.Apply(fails.ctx, 1); !errors.Is(err, fails.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	answers := []string{"$1\r\n5\r\n", ":-5\r\n", ":\r\n", ":99999999999999999999\r\n"}
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] != "ORACLE" || len(answers) == 0 {
			return nil, false
		}
		answer := answers[0]
		answers = answers[1:]
		return []byte(answer), true
	})
	if ms, err := c.Timeline("a").ReadWrite().Apply(within(t, 20*time.Second), 7); err != nil || ms != 7 || len(answers) > 0 {
		t.Errorf("after answers that make no sense: %d, %v, %d left", ms, err, len(answers))
	}
}

// TestReadWrite_AnswersForNoFloor: the first request for timestamps on a connection carries the floor, although the oracle was asked there before.
func TestReadWrite_AnswersForNoFloor(t *testing.T) {
	f := startCluster(t, 2)
	f.create(0, "a")
	c := f.dial(client.Options{Conns: 1})
	first := next(t, c.Timeline("a"))
	f.grant(1, "a")
	if _, err := c.Timeline("a").ReadWrite().Write(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	next(t, c.Timeline("a"))
	want := fmt.Sprintf("FLOOR %v", first)
	if got := timelineCommands(f.nodes[1], "a"); len(got) == 0 || !strings.Contains(got[len(got)-1], want) {
		t.Errorf("the new owner was asked %q, want %q", got, want)
	}
}
