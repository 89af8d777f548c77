// Package disruptor passes elements between goroutines through a preallocated
// ring, like the LMAX Disruptor: one or many producers, any number of consumers that
// each see every element, consumers that come after others, batches on both sides,
// and no allocation after set-up.
//
// # Sequences
//
// Every element has a sequence number, counted from 0, and lives in slot
// sequence mod capacity. Ranges are half-open, [lo, hi), except that of a [Handler].
//
//	released by           taken by               committed       reserved
//	all consumers         some consumer          (published)     (claimed)
//	──────┬───────────────────┬──────────────────────┬───────────────┬──────▶
//	      │◀─────────────── at most the capacity ───────────────────▶│
//
// A producer reserves (claims) a range, writes its slots and commits (publishes)
// it. A consumer takes what has been committed, reads it and releases it. The last
// consumers, those that no other comes after, are the gates: a slot can be reserved
// again when all of them have released it. What a consumer waits for, the producer or
// the consumers before it, is its barrier.
//
// Numbers never wrap: they have 63 bits, which last 292 years at a billion elements
// per second. So the code simply compares them with <.
//
// # Concurrency
//
// Set up a ring in one goroutine, then start the others:
//
//   - [Producer]: one goroutine.
//   - [SharedProducer]: any number of goroutines at the same time.
//   - [Consumer]: one goroutine for each Consumer. A [Runner] starts these goroutines, and
//     its handlers run in them.
//   - [Ring.At]: the goroutine that has reserved or taken the sequence number.
//
// # Memory ordering
//
// In the terms of the Go memory model:
//
//   - What a producer did before Commit of a range happens before what a consumer
//     does after Poll or Next returned it.
//   - What a consumer did before Release of a range happens before what later
//     consumers do after they got that range, and before what a producer does after
//     it reserved the same slots again.
//   - Consumers that do not come after one another are not ordered. They may read a
//     slot at the same time; if one writes to it, only consumers that come after it
//     may read it.
//   - Every consumer sees all elements once, in the order of their numbers. Elements
//     that one goroutine reserves one after another have increasing numbers.
//
// # Rules
//
// A reservation must be committed. A slot that was claimed and not committed is
// never skipped: consumers wait for it, and when the ring is full producers wait as
// well. A goroutine that may fail in between must commit anyway, if necessary in a
// deferred call, and mark the element as void.
//
// A consumer that stops taking or releasing blocks the producers, because otherwise
// elements would be lost. To avoid waiting for ever, let producers reserve with a
// context, or close the ring.
//
// A slot keeps its element until it is written again. If T has pointers and their
// memory matters, clear them before Release.
//
// # When a channel is better
//
// Nearly always. Any goroutine can send to a channel or receive from it, it works with
// select, and it has no protocol to follow. A ring is worth its rules in any of these
// cases: millions of elements per second, where the tens of nanoseconds of a channel
// matter; several consumers that all need every element, perhaps in an order; batches;
// no allocation and no copy of large elements; a consumer that sleeps in something
// other than a channel, such as epoll ([Consumer.Arm]). For work that any one of
// several workers may take, use a channel: a ring cannot do that.
package disruptor
