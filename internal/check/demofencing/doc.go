// Package demofencing shows why a lock needs a token: a holder that is paused loses its lock, goes on, and writes over the
// next holder's work, unless the store compares tokens.
//
// It owns the processes, the order of what they do, what is checked, and how that is drawn; the command line is in
// "isotone demo fencing". It must know no more of a node than an operator does, and reaches locks through package client alone.
//
// # How it works
//
// [Run] starts three nodes (package cluster) and a redis-server (redis.go). In each round (round.go) two holders, each a process that
// runs [Hold], take one lock after the other, because the first one is paused by SIGSTOP until its session has ended. Each writes to two
// keys: one behind a fence, by the script of package fence, and a plain one. What is drawn depends on a [Result] alone.
package demofencing
