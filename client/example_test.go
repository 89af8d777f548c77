package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// nodes are the addresses of a cluster; in these examples, of a fake one.
var nodes []string

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := client.New(ctx, "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ts, err := c.Timestamp(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ts)
}

func ExampleClient_Timestamps() {
	c := exampleClient()
	defer c.Close()
	// A thousand timestamps cost as much as one.
	r, err := c.Timestamps(context.Background(), 1000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Count, r.First.Before(r.At(1)), r.At(999) == r.Last())
	// Output: 1000 true true
}

func ExampleClient_In() {
	c := exampleClient()
	defer c.Close()
	// Without the round trip to a quorum, and as reliable as the clocks.
	ts, err := c.In(isotone.ReadLease).Timestamp(context.Background())
	fmt.Println(err, ts.Time > 0)
	// Output: <nil> true
}

func ExampleClient_Timeline() {
	c := exampleClient()
	defer c.Close()
	// An operator creates it: isotone timeline create orders
	orders := c.Timeline("orders")
	_, err := orders.Timestamp(context.Background())
	fmt.Println(errors.Is(err, isotone.ErrNotFound))
	// Output: true
}

func ExampleClient_Timestamp_deadline() {
	c := exampleClient()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch _, err := c.Timestamp(ctx); {
	case err == nil:
		fmt.Println("ok")
	case errors.Is(err, context.DeadlineExceeded): // as isotone.ErrDeadlineExceeded
		fmt.Println("no leader for 20 seconds; the message has the last failure:", err)
	case errors.Is(err, isotone.ErrOverloaded):
		fmt.Println("too many calls of this process are waiting")
	}
	// Output: ok
}

func ExampleClient_Snowflakes() {
	c := exampleClient()
	defer c.Close()
	ids, err := c.Snowflakes(context.Background(), 3)
	fmt.Println(len(ids), err)
	// Output: 3 <nil>
}

func ExampleClient_NewGenerator() {
	c := exampleClient()
	defer c.Close()
	ctx := context.Background()
	g, err := c.NewGenerator(ctx, client.GeneratorOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	// No request: the cluster has leased a worker to this process.
	a, _ := g.Next(ctx)
	b, _ := g.Next(ctx)
	fmt.Println(a < b)
	// Output: true
}

// Metrics with any library: hooks are called once for each request, not for each call, so
// they need not be very fast.
func ExampleHooks() {
	var requests, calls, retries atomic.Int64
	c := exampleClient(client.Hooks{
		Answered: func(a client.Answer) { requests.Add(1); calls.Add(int64(a.Calls)) },
		Retried:  func(addr string, err error) { retries.Add(1) },
		Leader:   func(addr string) { fmt.Println("a leader was found") },
	})
	defer c.Close()
	_, _ = c.Timestamp(context.Background())
	fmt.Println(requests.Load(), calls.Load(), retries.Load())
	// Output:
	// a leader was found
	// 1 1 0
}

// A commit wait: the write is done, and seen by others, only when its timestamp is in the past for
// everyone. The wait runs beside the write, so it costs nothing if the write takes longer than the
// interval is wide.
func ExampleClock_Wait() {
	c := exampleClient()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	k, err := c.NewClock(ctx, client.ClockOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()

	write := func(isotone.Timestamp) error { return nil } // in a program: replicates a value
	commit := func() (isotone.Timestamp, error) {
		ts, err := k.Timestamp(ctx) // no request
		if err != nil {
			return ts, err
		}
		written := make(chan error, 1)
		go func() { written <- write(ts) }()
		waited := k.Wait(ctx, ts)
		return ts, errors.Join(<-written, waited)
	}
	first, err := commit()
	if err != nil {
		log.Fatal(err)
	}
	// Whatever begins now, in any process, gets a larger timestamp: of a clock, or of the oracle.
	second, err := commit()
	fmt.Println(first.Before(second), k.After(first), err)
	// Output: true true <nil>
}

func ExampleClock_Now() {
	c := exampleClient()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	k, err := c.NewClock(ctx, client.ClockOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	now, err := k.Now()
	switch {
	case errors.Is(err, isotone.ErrNoLeader):
		fmt.Println("no reading is valid: there is no leader, or it is too far away")
	case errors.Is(err, isotone.ErrClock):
		fmt.Println("the rate of a clock is wrong")
	case err == nil:
		fmt.Println(now.Earliest <= now.Latest)
	}
	// Output: true
}

// exampleClient returns a client of a fake cluster.
func exampleClient(hooks ...client.Hooks) *client.Client {
	o := client.Options{Addrs: nodes}
	if len(hooks) > 0 {
		o.Hooks = hooks[0]
	}
	c, err := client.NewWith(context.Background(), o)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A secret that another program replaces: the function is called for each new connection.
func ExampleOptions_credentials() {
	secret := "hush" // in a program: the content of a file
	o := client.Options{
		Addrs: nodes,
		Credentials: func(context.Context) (client.Credentials, error) {
			return client.Credentials{Name: "billing", Secret: secret}, nil
		},
	}
	got, err := o.Credentials(context.Background())
	fmt.Println(got, err)
	// Output: "billing" (secret not shown) <nil>
}
