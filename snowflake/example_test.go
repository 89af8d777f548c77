package snowflake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// IDs without a server: one generator for each worker.
func Example() {
	ids := snowflake.New(7)
	a, err := ids.Next(context.Background())
	if err != nil {
		panic(err)
	}
	b, err := ids.Next(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(a < b, snowflake.Twitter.Worker(a), time.Since(snowflake.Twitter.Time(a)) < time.Minute)
	// Output: true 7 true
}

func ExampleID() {
	id, err := snowflake.Parse("1541815603606036480")
	if err != nil {
		panic(err)
	}
	fmt.Println(id, id.Base62(), id.Hex())
	text, _ := json.Marshal(map[string]snowflake.ID{"id": id})
	fmt.Println(string(text))
	// Output:
	// 1541815603606036480 1ptWyK4WgZU 1565a11f6217a000
	// {"id":"1541815603606036480"}
}

func ExampleLayout() {
	const id = snowflake.ID(1541815603606036480)
	l := snowflake.Twitter
	fmt.Println(l, l.Workers(), "workers")
	fmt.Println(l.Time(id).Format(time.RFC3339Nano), l.Datacenter(id), l.InDatacenter(id), l.Sequence(id))
	// Output:
	// 41/5/5/12 1024 workers
	// 2022-06-28T16:07:40.105Z 11 26 0
}

func ExampleParseLayout() {
	l, err := snowflake.ParseLayout("43/8/12", time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	if err != nil {
		panic(err)
	}
	ids, err := snowflake.NewGenerator(255, snowflake.Options{Layout: l})
	if err != nil {
		panic(err)
	}
	fmt.Println(ids.Worker(), "of", l.Workers(), "until", time.UnixMilli(l.LastMillis()).UTC().Year())
	// Output: 255 of 256 until 2302
}

// The IDs of a batch are consecutive.
func ExampleGenerator_TryFill() {
	clock := func() int64 { return 1_700_000_000_000 }
	ids, err := snowflake.NewGenerator(1, snowflake.Options{Now: clock})
	if err != nil {
		panic(err)
	}
	batch := make([]snowflake.ID, 4098)
	if err := ids.TryFill(batch); err != nil {
		panic(err)
	}
	l := ids.Layout()
	for _, id := range []snowflake.ID{batch[0], batch[4095], batch[4096], batch[4097]} {
		fmt.Println(l.Millis(id), l.Sequence(id))
	}
	// Output:
	// 1700000000000 0
	// 1700000000000 4095
	// 1700000000001 0
	// 1700000000001 1
}

// Errors tell whether to wait, to renew the lease or to correct the clock.
func ExampleGenerator_TryNext() {
	clock := int64(1_700_000_000_000)
	ids, err := snowflake.NewGenerator(1, snowflake.Options{
		Now:   func() int64 { return clock },
		Lease: snowflake.Lease{Start: clock, End: clock + 10_000},
	})
	if err != nil {
		panic(err)
	}
	_, err = ids.TryNext()
	fmt.Println(err)

	clock -= 5_000
	_, err = ids.TryNext()
	fmt.Println(err)
	fmt.Println(errors.Is(err, snowflake.ErrInvalidSystemClock), errors.Is(err, isotone.ErrClock))

	clock += 20_000
	_, err = ids.TryNext()
	fmt.Println(err, errors.Is(err, snowflake.ErrLeaseEnded))
	// Output:
	// <nil>
	// clock: the clock went back: it is at 1699999995000 ms, 5000 ms behind the last ID
	// true true
	// overloaded: the lease of this worker has ended true
}

// The rest of a lease goes to the next generator, whose IDs are all larger.
func ExampleGenerator_Stop() {
	clock := func() int64 { return 1_700_000_000_000 }
	lease := snowflake.Lease{Start: clock(), End: clock() + 1000}
	first, err := snowflake.NewGenerator(1, snowflake.Options{Now: clock, Lease: lease})
	if err != nil {
		panic(err)
	}
	a, _ := first.TryNext()

	lease.Start = first.Stop()
	second, err := snowflake.NewGenerator(1, snowflake.Options{Now: clock, Lease: lease})
	if err != nil {
		panic(err)
	}
	b, _ := second.TryNext()
	fmt.Println(lease.Start-clock(), a < b)
	// Output: 1 true
}
