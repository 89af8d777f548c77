// Package disruptor passes elements between goroutines through a preallocated
// ring, in the way of the LMAX disruptor: one or many producers, any number of
// consumers that each see every element, consumers that come after others, batches
// on both sides, and no allocation after set-up.
//
// # Sequences
//
// Every element has a sequence number, counted from 0, and lives in slot
// sequence mod capacity. All ranges are half-open: [lo, hi) has hi-lo elements.
//
//	released by           taken by               committed       reserved
//	all consumers         some consumer          (published)     (claimed)
//	──────┬───────────────────┬──────────────────────┬───────────────┬──────▶
//	      │◀─────────────── at most the capacity ───────────────────▶│
//
// A producer reserves (claims) a range, writes its slots and commits (publishes)
// it. A consumer takes what has been committed, reads it and releases it. Those
// consumers that no other one comes after are the gates: a slot is reserved again
// when all of them have released it. What a consumer waits for, the producer or the
// consumers before it, is its barrier.
//
// Numbers never wrap. They have 63 bits, and at a billion elements a second those
// last 292 years, so that the code compares them with < and nothing else.
//
// # Who may do what
//
// Set up a ring in one goroutine, then start the others:
//
//   - [Producer]: one goroutine.
//   - [SharedProducer]: any number of goroutines at the same time.
//   - [Consumer]: one goroutine for each Consumer.
//   - [Ring.At]: whoever holds the sequence number, as producer or consumer.
//
// # Memory ordering
//
// In the terms of the Go memory model:
//
//   - What a producer did before Commit of a range happens before what a consumer
//     does after Poll or Next returned it.
//   - What a consumer did before Release of a range happens before what consumers
//     that come after it do when they got that range, and before what a producer
//     does that reserved the same slots again.
//   - Consumers that do not come after one another are not ordered. They may read a
//     slot at the same time; if one writes to it, another may only look when it comes
//     after that one.
//   - Every consumer sees all elements once, in the order of their numbers. Elements
//     that one goroutine reserved in turn have growing numbers.
//
// # What must be kept
//
// A reservation must be committed. A slot that was claimed and not committed is
// never skipped: consumers wait in front of it, and when the ring is full producers
// wait as well. A goroutine that can fail in between commits anyway and marks the
// element as void in a way of its own, in a deferred call if need be.
//
// A consumer that no longer takes or releases holds up the producers: that is what
// keeps an element from being lost. Let producers reserve with a context, or close
// the ring.
//
// A slot keeps what it holds until it is written again. If T has pointers, clear
// them before Release where the memory matters.
//
// # When a channel is better
//
// Nearly always. Any goroutine can send to a channel or receive from it, it works with
// select, and it has no protocol to follow. A ring pays where one of these holds: millions
// of elements a second, when the tens of nanoseconds of a channel matter;
// several consumers that all need every element, or need it in an order; batches;
// no allocation and no copy of large elements; a consumer that sleeps in something
// other than a channel, such as epoll ([Consumer.Arm]). For work that any one of
// several workers may take, use a channel: a ring cannot do that.
package disruptor
