// Package stats tells what a request has cost: how long it took, how much of that a
// processor worked for it, and how long it stood still.
//
// It owns the measurement of one section of work ([Start]), the middleware that applies
// it to every request of a handler ([Handler]), the log line that says so ([Recorder]),
// and the reading of such lines ([Read]), which ends in how many workers a core can keep
// busy. It knows neither the servers nor the metrics: who wires it passes functions.
// What a request is called is internal/front/transaction's.
//
// # What is measured
//
// The section of a request is the time in its handler: not the parsing of the request
// before it, nor what the server writes after it. Of this section there are three
// figures: wall, user and system. The stall is wall minus user minus system: the time in
// which no processor worked for this request on its own goroutine, because it waited for
// a disk, a network, a lock, another goroutine, or for a processor.
//
// Go does not count processor time by goroutine, and Linux does by thread. So a section
// keeps its goroutine on one thread, which makes its waiting dearer: each wait hands a
// processor from one thread to another. That, and the system calls, is why it is off
// unless asked for. Where there are no such clocks, only wall is known.
package stats
