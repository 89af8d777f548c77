// Package stats measures requests: how long each takes, how much of that a processor works
// for it, and how long it stalls.
//
// It owns the measurement of one section of work ([Start]) and of an event loop ([Meter]),
// the middleware that measures every request of a handler ([Handler]), the log line for each
// ([Recorder]), and the evaluation of such logs ([Read]), including how many workers a core
// can keep busy. It knows neither the servers nor the metrics: callers pass functions.
// Request IDs are those of internal/front/requestid.
//
// # What is measured
//
// The section of a request is the time in its handler, without the parsing of the request
// before it and the server's writes after it. It has three figures: wall, user and system.
// The stall is wall minus user minus system: the time in which no processor worked for this
// request on its own goroutine, because it waited for a disk, a network, a lock, another
// goroutine, or a processor.
//
// Go does not count CPU time by goroutine, but Linux does by thread. So a section locks its
// goroutine to its thread, which makes waiting more expensive: each wait hands a processor
// from one thread to another. That, and the system calls, is why measuring is opt-in. On
// systems without such clocks only wall is known.
package stats
