package disruptor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isotone/isotone/disruptor"
)

// One goroutine writes, another reads.
func Example() {
	ring, err := disruptor.New[string](8)
	if err != nil {
		panic(err)
	}
	reader := ring.Consumer()
	producer := ring.Producer()

	go func() {
		defer producer.Close()
		ctx := context.Background()
		for _, words := range [][]string{{"one"}, {"two", "three", "four"}} {
			lo, hi, err := producer.Reserve(ctx, len(words))
			if err != nil {
				return
			}
			for i, word := range words {
				*ring.At(lo + uint64(i)) = word
			}
			producer.Commit(lo, hi)
		}
	}()

	for {
		lo, hi, err := reader.Next(context.Background())
		if errors.Is(err, disruptor.ErrClosed) {
			break
		}
		for seq := lo; seq < hi; seq++ {
			fmt.Println(seq, *ring.At(seq))
		}
		reader.Release(hi)
	}
	// Output:
	// 0 one
	// 1 two
	// 2 three
	// 3 four
}

// A diamond: two consumers work on each element at the same time, and a third comes
// after both. The first two write to different fields.
func ExampleRing_Consumer() {
	type order struct {
		price, tax, discount int
	}
	ring, err := disruptor.New[order](4)
	if err != nil {
		panic(err)
	}
	taxes := ring.Consumer()
	discounts := ring.Consumer()
	totals := ring.Consumer(taxes, discounts)
	producer := ring.Producer()

	each := func(c *disruptor.Consumer, work func(*order)) {
		for {
			lo, hi, err := c.Next(context.Background())
			if err != nil {
				return
			}
			for seq := lo; seq < hi; seq++ {
				work(ring.At(seq))
			}
			c.Release(hi)
		}
	}
	go each(taxes, func(o *order) { o.tax = o.price / 5 })
	go each(discounts, func(o *order) { o.discount = o.price / 10 })
	go func() {
		for price := 100; price <= 600; price += 100 {
			lo, hi, _ := producer.Reserve(context.Background(), 1)
			*ring.At(lo) = order{price: price}
			producer.Commit(lo, hi)
		}
		producer.Close()
	}()
	each(totals, func(o *order) { fmt.Print(o.price+o.tax-o.discount, " ") })
	// Output: 110 220 330 440 550 660
}

// Several goroutines write to one ring. Slots are reused, so elements need no allocation.
func ExampleSharedProducer() {
	ring, err := disruptor.New[[]byte](16)
	if err != nil {
		panic(err)
	}
	reader := ring.Consumer()
	producer := ring.SharedProducer()

	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				lo, hi, err := producer.Reserve(context.Background(), 1)
				if err != nil {
					return
				}
				slot := ring.At(lo)
				*slot = append((*slot)[:0], "hello"...)
				producer.Commit(lo, hi)
			}
		})
	}
	go func() {
		writers.Wait()
		producer.Close()
	}()

	bytes := 0
	for {
		lo, hi, err := reader.Next(context.Background())
		if err != nil {
			break
		}
		for seq := lo; seq < hi; seq++ {
			bytes += len(*ring.At(seq))
		}
		reader.Release(hi)
	}
	fmt.Println(bytes)
	// Output: 2000
}

// A consumer that sleeps by other means: here in a select with a channel of other work.
// An event loop would sleep in epoll instead, and Wake would write to an eventfd.
func ExampleConsumer_Arm() {
	ring, err := disruptor.New[int](8)
	if err != nil {
		panic(err)
	}
	reader := ring.Consumer()
	bell := make(chan struct{}, 1)
	reader.Wake = func() {
		select {
		case bell <- struct{}{}:
		default: // the last one is still pending
		}
	}
	producer := ring.SharedProducer()
	other := make(chan string)

	go func() {
		for i := range 3 {
			lo, hi, _ := producer.Reserve(context.Background(), 1)
			*ring.At(lo) = i
			producer.Commit(lo, hi)
		}
		other <- "other work"
		producer.Close()
	}()

	sum := 0
	for {
		lo, hi, err := reader.Poll() // also cancels an Arm, which avoids a needless wake-up
		if errors.Is(err, disruptor.ErrClosed) {
			break
		}
		for seq := lo; seq < hi; seq++ {
			sum += *ring.At(seq)
		}
		reader.Release(hi)
		if lo < hi || !reader.Arm() {
			continue // there may be more
		}
		select { // asleep
		case <-bell:
		case work := <-other:
			fmt.Println(work)
		}
	}
	fmt.Println("sum", sum)
	// Output:
	// other work
	// sum 3
}

// A producer that drops elements instead of waiting.
func ExampleProducer_TryReserve() {
	ring, err := disruptor.New[int](4)
	if err != nil {
		panic(err)
	}
	reader := ring.Consumer()
	producer := ring.Producer()

	dropped := 0
	for i := range 10 {
		lo, hi, err := producer.TryReserve(1)
		if errors.Is(err, disruptor.ErrFull) {
			dropped++
			continue
		}
		*ring.At(lo) = i
		producer.Commit(lo, hi)
	}
	_, hi, _ := reader.Poll()
	fmt.Println(hi, "kept,", dropped, "dropped")
	// Output: 4 kept, 6 dropped
}

// adder is a Handler that adds up what it consumes.
type adder struct {
	name string
	ring *disruptor.Ring[int64]
	sum  int64
}

func (a *adder) Consume(lower, upper int64) {
	for seq := lower; seq <= upper; seq++ {
		a.sum += *a.ring.At(uint64(seq))
	}
}

// Four handlers in two groups: those of the second get an element when both of the first have
// consumed it.
func ExampleRunner() {
	ring, err := disruptor.New[int64](1024 * 64)
	if err != nil {
		panic(err)
	}
	var handlers [4]adder
	for i := range handlers {
		handlers[i] = adder{name: fmt.Sprintf("group %d, handler %d", i/2+1, i%2+1), ring: ring}
	}
	runner, err := ring.Runner(
		disruptor.Group{&handlers[0], &handlers[1]},
		disruptor.Group{&handlers[2], &handlers[3]})
	if err != nil {
		panic(err)
	}
	producer := ring.Producer() // or SharedProducer, for several goroutines
	if err := runner.Start(); err != nil {
		panic(err)
	}

	ctx := context.Background()
	for _, n := range []int{1, 16} {
		lo, hi, err := producer.Reserve(ctx, n)
		if err != nil {
			panic(err)
		}
		for seq := lo; seq < hi; seq++ {
			*ring.At(seq) = int64(seq) + 42
		}
		producer.Commit(lo, hi)
	}
	if err := runner.Stop(ctx); err != nil { // all four have consumed all 17
		panic(err)
	}
	for _, h := range handlers {
		fmt.Println(h.name, h.sum)
	}
	// Output:
	// group 1, handler 1 850
	// group 1, handler 2 850
	// group 2, handler 1 850
	// group 2, handler 2 850
}
