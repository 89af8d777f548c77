// Package clockbench measures the cluster clock of a running cluster, as several processes with the
// Go client see it, and checks what they see (I14, docs/intervals.md).
//
// It owns the processes, the phases of a run, the checks and the report; the command line is in
// "isotone bench --interval". It does not know how the cluster clock works: it uses package client,
// and package bench for readings that are asked of a node.
//
// # How it works
//
// [Run] starts processes, each of which calls [Serve] (process.go). It tells them over a pipe what to
// do next, and they answer with what they measured and recorded (message.go). The processes are on one
// machine, so they share its steady clock (steady.Exact): its readings put what all of them have
// recorded in one order. [Evidence.Check] judges that after the run (check.go); it is pure.
package clockbench
