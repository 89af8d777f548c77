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

type traceKey struct{}

// traceOf is a TraceParent that takes the text from a context.
func traceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}

func traceparent(n int, flags string) string { return fmt.Sprintf("00-%032x-%016x-%s", n, n, flags) }

// traces returns what the requests that a node has heard carry: the trace context, or "".
func traces(n *node) (list []string) {
	for _, command := range n.commands("") {
		if strings.HasPrefix(command, "TS") || strings.HasPrefix(command, "SNOWFLAKE") {
			_, trace, _ := strings.Cut(command, " TRACEPARENT ")
			list = append(list, trace)
		}
	}
	return list
}

// tracedWays are all ways to make a request.
func tracedWays(c *client.Client) map[string]func(context.Context) error {
	ways := map[string]func(context.Context) error{
		"above": func(ctx context.Context) error {
			_, err := c.In(isotone.ReadQuorum).Above(isotone.Timestamp{Time: 1}).Timestamp(ctx)
			return err
		},
		"id":  func(ctx context.Context) error { _, err := c.Snowflake(ctx); return err },
		"ids": func(ctx context.Context) error { _, err := c.Snowflakes(ctx, 3); return err },
	}
	for name, way := range stampWays(c) {
		ways[name] = func(ctx context.Context) error { _, err := way(ctx); return err }
	}
	return ways
}

// TestTrace_IsCarriedByEachWay if it is sampled, and by no later request.
func TestTrace_IsCarriedByEachWay(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{TraceParent: traceOf})
	for name, call := range tracedWays(c) {
		for i, text := range []string{
			"", traceparent(7, "01"), "", traceparent(8, "00"), traceparent(0, "01"), "nonsense", strings.ToUpper(traceparent(10, "01")),
			traceparent(9, "03"), traceparent(9, "01") + "-x", "cc" + traceparent(9, "01")[2:],
		} {
			before := len(traces(f.nodes[0]))
			if err := call(context.WithValue(within(t, 10*time.Second), traceKey{}, text)); err != nil {
				t.Fatalf("%s, %q: %v", name, text, err)
			}
			if i != 1 && i != 7 {
				text = ""
			}
			carried := ""
			for _, trace := range traces(f.nodes[0])[before:] {
				carried += trace
			}
			if carried != text {
				t.Errorf("%s %d: %q was carried, want %q", name, i, carried, text)
			}
		}
	}
}

// TestTrace_ABatchCarriesThatOfItsFirstTracedCall that has not left.
func TestTrace_ABatchCarriesThatOfItsFirstTracedCall(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{TraceParent: traceOf, Conns: 1})
	wantTimestamp(t, c)
	f.nodes[0].freeze()
	background := within(t, 20*time.Second)
	done := make(chan error, 8)
	waiting := uint64(0)
	start := func(ctx context.Context) {
		go func() {
			_, err := c.Timestamps(ctx, 1)
			done <- err
		}()
	}
	wait := func(ctx context.Context) {
		start(ctx)
		waiting++
		await.Until(t, "the call waits", func() bool { return client.Waiting(c) == waiting })
	}
	traced := func(ctx context.Context, n int) context.Context {
		return context.WithValue(ctx, traceKey{}, traceparent(n, "01"))
	}
	before := f.nodes[0].count("TS")
	start(background)
	await.Until(t, "a request is under way", func() bool { return f.nodes[0].count("TS") == before+1 })
	wait(background)
	leaving, leave := context.WithCancel(background)
	wait(traced(leaving, 1))
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	waiting--
	wait(traced(background, 2))
	wait(traced(background, 3))
	f.nodes[0].thaw()
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	all := traces(f.nodes[0])
	if got := all[len(all)-1]; got != traceparent(2, "01") || strings.Join(all, "") != got {
		t.Errorf("the requests carry %q", all)
	}
}

// TestTrace_OlderNodesAreAskedWithoutIt, and the floor is given up only by those that do not know
// it either.
func TestTrace_OlderNodesAreAskedWithoutIt(t *testing.T) {
	for _, old := range []bool{false, true} {
		f := startCluster(t, 1)
		f.untraced, f.old = true, old
		c := f.dial(client.Options{TraceParent: traceOf, Floor: isotone.Timestamp{Time: 1}})
		ctx := context.WithValue(within(t, 20*time.Second), traceKey{}, traceparent(7, "01"))
		for name, call := range tracedWays(c) {
			for range 10 {
				if err := call(ctx); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		refused, withFloor := 0, 0
		for _, command := range f.nodes[0].commands("TS") {
			if strings.Contains(command, "TRACEPARENT") {
				refused++
			} else if strings.Contains(command, "FLOOR") {
				withFloor++
			}
		}
		// Each connection learns it once; Above is a request with a floor of its own.
		if refused == 0 || refused > client.ConnsDefault+1 || withFloor == 0 || !old && withFloor < 10 {
			t.Errorf("old %v: %d requests with a trace context, then %d with a floor", old, refused, withFloor)
		}
	}
}

// TestTrace_IsCarriedAgain by a request that is repeated.
func TestTrace_IsCarriedAgain(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{TraceParent: traceOf, Conns: 1})
	failed := false
	f.nodes[0].mu.Lock()
	f.nodes[0].reply = func(args []string) ([]byte, bool) {
		if args[0] != "TS" || failed {
			return nil, false
		}
		failed = true
		return []byte("-TRYAGAIN later\r\n"), true
	}
	f.nodes[0].mu.Unlock()
	ctx := context.WithValue(within(t, 20*time.Second), traceKey{}, traceparent(7, "01"))
	if _, err := c.Timestamps(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if all := traces(f.nodes[0]); len(all) != 2 || all[0] != traceparent(7, "01") || all[0] != all[1] {
		t.Errorf("the requests carry %q", all)
	}
}
