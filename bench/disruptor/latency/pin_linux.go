package main

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// cpus returns the CPUs that this process may use, of which there is at least one.
func cpus() (list []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no CPU is allowed")
	}
	return list, nil
}

// pin gives the calling goroutine a thread of its own, which stays on a CPU and ends with the goroutine.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}
