package utc

import (
	"bytes"
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	clockBoundPath = "/var/run/clockbound/shm0"
	vmClockPath    = "/dev/vmclock0"
	// attemptsMax bounds how often a file is read again because its writer is busy.
	attemptsMax = 4
)

func readClockBound() (Status, bool) { return readSegment(clockBoundPath, vmClockPath) }

// readSegment reads ClockBound's segment at path.
func readSegment(path, vmClock string) (Status, bool) {
	var s segment
	if !readStable(path, s[:], func() bool { return s.generation()&1 != 0 }) {
		return Status{}, false
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return Status{}, false
	}
	status, err := s.status(ts.Nano(), func(marker uint64) bool { return disrupted(vmClock, marker) })
	return status, err == nil
}

// disrupted reports whether the marker of the virtual machine's clock is another one, or cannot be
// read. The layout is that of struct vmclock_abi in the kernel's uapi/linux/vmclock-abi.h.
func disrupted(path string, marker uint64) bool {
	var b [24]byte
	ok := readStable(path, b[:], func() bool { return b[12]&1 != 0 }) // the sequence is odd during a change
	return !ok || string(b[:4]) != "VCLK" || binary.LittleEndian.Uint64(b[16:]) != marker
}

// readStable reads the beginning of a file until it reads the same twice, and its writer is not busy.
func readStable(path string, b []byte, busy func() bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	again := make([]byte, len(b))
	for range attemptsMax {
		if _, err := f.ReadAt(b, 0); err != nil {
			return false
		}
		if _, err := f.ReadAt(again, 0); err != nil {
			return false
		}
		if bytes.Equal(b, again) && !busy() {
			return true
		}
	}
	return false
}

// readKernel returns what the synchronizing program has told the kernel. Its maximum error grows by
// 500 µs a second while nobody corrects it.
func readKernel() (Status, bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil { // as in containers that forbid it
		return Status{}, false
	}
	return kernelStatus(state, &t), true
}

func kernelStatus(state int, t *unix.Timex) Status {
	s := Status{Source: Kernel, Synchronized: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0}
	if s.Synchronized {
		s.Known, s.Error = true, time.Duration(t.Maxerror)*time.Microsecond
	}
	return s
}
