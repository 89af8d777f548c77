// Package verify tests a timestamp oracle, of whatever make: it runs a cluster of it as processes, has clients ask
// all the time, breaks nodes and links meanwhile, checks every answer against real time, and reports what held.
//
// A driver knows one system: how its nodes are started, and how they are asked. It is a process that reads and writes
// lines of JSON (package driver), also where it is part of this program. So every system is tested by the same code.
//
// The clients are spread over several driver processes. All times are readings of CLOCK_MONOTONIC, which the processes
// of a machine share, so order among calls of different processes is known exactly.
package verify
