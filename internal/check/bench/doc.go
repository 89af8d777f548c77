// Package bench loads an oracle and judges what it answers: how many timestamps, how
// fast, how long it ever fell silent, and whether every one was unique and in real-time
// order, outages included.
//
// It owns the load, its measurement and its reports; "isotone bench" is the wiring. It
// must not know how an oracle works: it speaks to nodes as any client does, and leaves
// the verdict to internal/core/lincheck.
//
// # How it works
//
// [Run] asks a target who leads (probe.go) and opens the connections. Each has a lane: a
// goroutine that takes requests from the load, sends them, and receives the answers
// (lane.go). In a closed loop there is always a next request to take; in an open loop
// the requests arrive on a schedule (schedule.go), and wait in a bounded queue if no
// lane is free. A lane speaks through a conn (protocol.go): HTTP/1.1 (http1.go) and RESP
// (resp.go) written by hand, HTTP/2 and HTTP/3 from libraries (multiplex.go). A protocol
// that is pipelined on one byte stream (pipe.go) needs only a request and a parser.
//
// All lanes follow one route (route.go): whoever learns of a new leader, or loses the
// old one, shows the others the way.
//
// Answers are counted in shards (tally.go), which the coordinator (run.go) empties ten
// times a second into the histogram of the run and a series of intervals. It also breaks
// connections that have been silent for too long, so that lanes need no timers.
package bench
