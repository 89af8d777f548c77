// Package snowflake makes and reads snowflakes: unique 63-bit ids that many workers
// make without talking to each other, and that order roughly by time. The idea and
// the default layout are those of Twitter's Snowflake (2010).
//
//	63                                   22      17      12              0
//	┌─┬───────────────────────────────────┬───────┬───────┬──────────────┐
//	│0│ 41 bits: milliseconds since epoch │5: dc  │5: wkr │ 12: sequence │
//	└─┴───────────────────────────────────┴───────┴───────┴──────────────┘
//
// [ID] is such a number and has the usual text forms; a [Layout] says what its bits
// mean; a [Generator] makes the ids of one worker. None of it needs a server:
//
//	ids := snowflake.New(7) // worker 7, of 0 to 1023
//	id, err := ids.TryNext()
//
// # What is promised
//
// The ids of one Generator strictly increase, in the order in which its methods
// take effect, whatever the clock does. Ids of different workers differ. So ids are unique as
// long as no two Generators work for one worker and one millisecond at once. Within a
// process that is for the caller to see to: one Generator for each worker. Between
// processes, and from one start of a process to the next, it is what a [Lease] is
// for: the milliseconds that this Generator alone may use.
//
// Without a lease a Generator knows nothing of its predecessor. A process that
// starts again with the same worker must then wait until the clock has passed the
// last id of the one before, which is up to [Options.AheadMax] ahead of the clock
// that it had.
//
// # Time
//
// An id has the current millisecond, or that of the id before if the clock is
// behind that one. When the sequence of a millisecond is used up, the next ids
// borrow from the next millisecond. Both may run ahead of the clock by at most
// [Options.AheadMax]; from there on ids are refused until the clock has come after:
// with [ErrExhausted] if they were asked for faster than the sequence allows, with
// [InvalidSystemClock] if the clock went back.
//
// Units: the clock and leases count unix milliseconds, in int64. Ranges are
// half-open: [Start, End).
//
// # Concurrency
//
// All methods of a Generator may be called from any goroutine. Making ids takes one
// compare-and-swap, no lock, and does not allocate. Values of the other types are
// plain values.
package snowflake
