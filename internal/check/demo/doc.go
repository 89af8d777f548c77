// Package demo shows Isotone at work: it runs a cluster of real processes, has clients use it, breaks
// it, and draws what the clients saw.
//
// It owns the processes, the checked load, what is measured, and how that is drawn; the command line
// is in "isotone demo". It must know no more of a node than an operator does: settings, signals and
// the HTTP interface. Tests that have to break a cluster in other ways use internal/check/chaos.
//
// # How it works
//
// [Failover] starts the nodes (package cluster), each a process with ports and a directory of its own.
// Clients of package client ask for timestamps all the time (load.go), and internal/core/lincheck checks
// the order and uniqueness of every answer. Watchers ask each node which one leads (leader.go). Every
// few seconds the leader is killed, and started again later (failover.go). Answers are counted in
// bins of a millisecond, from which [Result] has columns and, around each kill, every bin.
//
// What is drawn depends on a [Result] alone: [Screen] draws one that grows, in a terminal or as
// plain lines, [Result.Summary] one that is complete, and [Result.Picture] makes an SVG of it.
package demo
