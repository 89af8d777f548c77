// Package snowflake makes and parses snowflakes: unique 63-bit IDs that many workers
// make without communicating, and that are roughly ordered by time. The idea and the
// default layout are those of Twitter's Snowflake (2010).
//
//	63                                   22      17      12              0
//	┌─┬───────────────────────────────────┬───────┬───────┬──────────────┐
//	│0│ 41 bits: milliseconds since epoch │5: dc  │5: wkr │ 12: sequence │
//	└─┴───────────────────────────────────┴───────┴───────┴──────────────┘
//
// [ID] is such a number, with the usual text forms; a [Layout] defines what its bits
// mean; a [Generator] makes the IDs of one worker. None of them needs a server:
//
//	ids := snowflake.New(7) // worker 7, of 0 to 1023
//	id, err := ids.TryNext()
//
// # Guarantees
//
// The IDs of one Generator strictly increase, in the order in which its methods
// take effect, whatever the clock does. IDs of different workers differ. So IDs are
// unique as long as no two Generators use the same worker and the same millisecond.
// Within a process, the caller ensures this with only one Generator for each worker.
// Across processes and restarts, a [Lease] ensures it: only its holder may use the
// milliseconds in it.
//
// Without a lease a Generator does not know the IDs of its predecessor. A process that
// restarts with the same worker must then wait until the clock has passed the last ID
// of the previous process, which may be up to [Options.AheadMax] ahead of the clock at
// that time.
//
// # Time
//
// An ID has the current millisecond, or that of the previous ID if the clock is
// behind that. When the sequence of a millisecond is used up, the next IDs borrow
// from the next millisecond. In both cases IDs may be ahead of the clock by at most
// [Options.AheadMax]; beyond that the Generator refuses to make IDs until the clock
// has caught up: with [ErrExhausted] if the requests are faster than the sequence
// allows, with [InvalidSystemClock] if the clock went back.
//
// Units: the clock and leases count unix milliseconds, in int64. Ranges are
// half-open: [Start, End).
//
// # Concurrency
//
// All methods of a Generator may be called from any goroutine. Making IDs takes one
// compare-and-swap and no lock, and does not allocate. The other types are plain
// values.
package snowflake
