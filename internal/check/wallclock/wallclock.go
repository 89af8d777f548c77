// Package wallclock sets the wall clock of other processes, and leaves that of the machine alone.
//
// Programs read the clock through the vDSO, code that the kernel maps into each process. The package replaces its functions,
// in one process at a time, by some that make the system call and add an offset. So it needs no help of a program, and none of
// root for the descendants of this process. CLOCK_REALTIME, its coarse form and CLOCK_TAI are set, clocks that count from the
// start of the machine are not. What makes the system call itself gets the time of the machine.
package wallclock

import "errors"

// ErrBusy is returned by [Set] while a thread of the process executes what is to be replaced, or does not stop, because it waits for
// a disk or for a process that it has started.
var ErrBusy = errors.New("a thread does not stop where its clock can be set")
