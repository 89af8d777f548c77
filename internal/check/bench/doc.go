// Package bench puts load on an oracle and checks the answers: how many timestamps, how
// fast, the longest outage, and whether every timestamp was unique and in real-time order.
//
// It owns the load, its measurement and its reports; the command line is in "isotone
// bench". It does not know how an oracle works: it talks to nodes as any client does, and
// internal/core/lincheck checks the order.
//
// # How it works
//
// [Run] asks a target for the leader (probe.go) and opens the connections. Each has a
// caller: a goroutine that takes requests from the load, sends them, and receives the
// answers (caller.go). In a closed loop there is always a next request to take; in an open
// loop the requests arrive on a schedule (schedule.go), and wait in a bounded queue if no
// caller is free. A caller uses a conn (protocol.go): HTTP/1.1 (http1.go), RESP
// (resp.go) and HTTP/2 (http2.go) are written by hand, HTTP/3 comes from a library (multiplex.go). A
// protocol that is pipelined on one byte stream (pipe.go) needs only a request and a parser.
//
// All callers share one route (route.go): a caller that learns of a new leader, or gets no
// answer from the old one, redirects all.
//
// Answers are counted in shards (tally.go), which the coordinator (run.go) empties ten
// times a second into the histogram of the run and a series of intervals. It also breaks
// connections that have been silent for too long, so callers need no timers.
package bench
