// Package verify tests a timestamp oracle, of whatever make: it runs a cluster of it as processes, has clients ask
// all the time, breaks nodes and links meanwhile, checks every answer against real time, and reports what held.
//
// A [Driver] knows one system: how its nodes are started, and how they are asked. It is an external program that
// speaks JSON lines on its standard input and output (see docs/verify.md), also where it is part of
// "isotone verify": so a stranger's system is tested by exactly the same code as ours.
//
// The clients are spread over several driver processes. All times are readings of CLOCK_MONOTONIC, which the processes
// of a machine share, so order among calls of different processes is known exactly.
package verify
