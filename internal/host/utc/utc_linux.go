package utc

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	clockBoundPath = "/var/run/clockbound/shm0"
	vmClockPath    = "/dev/vmclock0"
	// attemptsMax bounds how often a segment is read again because the daemon is writing it.
	attemptsMax = 4
)

func readClockBound() (Status, bool) { return readSegment(clockBoundPath, vmClockPath) }

// readSegment reads ClockBound's segment at path.
func readSegment(path, vmClock string) (Status, bool) {
	f, err := os.Open(path)
	if err != nil {
		return Status{}, false
	}
	defer f.Close()
	var s, again segment
	for range attemptsMax {
		if _, err := f.ReadAt(s[:], 0); err != nil {
			return Status{}, false
		}
		if _, err := f.ReadAt(again[:], 0); err != nil {
			return Status{}, false
		}
		if s != again {
			continue
		}
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return Status{}, false
		}
		status, err := s.status(ts.Nano(), func(marker uint64) bool { return disrupted(vmClock, marker) })
		return status, err == nil
	}
	return Status{}, false
}

// disrupted reports whether the marker of the virtual machine's clock is another one, or cannot be
// read. The layout is that of struct vmclock_abi in the kernel's uapi/linux/vmclock-abi.h.
func disrupted(path string, marker uint64) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var b, again [24]byte
	for range attemptsMax {
		if _, err := f.ReadAt(b[:], 0); err != nil {
			return true
		}
		if _, err := f.ReadAt(again[:], 0); err != nil {
			return true
		}
		sequence := binary.LittleEndian.Uint32(b[12:])
		if b != again || sequence&1 != 0 {
			continue
		}
		return string(b[:4]) != "VCLK" || binary.LittleEndian.Uint64(b[16:]) != marker
	}
	return true
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
