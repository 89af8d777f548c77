package utc

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadSegment_FromAFile(t *testing.T) {
	dir := t.TempDir()
	path, vmClock := filepath.Join(dir, "shm0"), filepath.Join(dir, "vmclock0")
	if s, ok := readSegment(path, vmClock); ok {
		t.Errorf("%+v without a file", s)
	}
	put := func(path string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	s := written()
	binary.NativeEndian.PutUint64(s[16:], uint64(now.Sec))
	binary.NativeEndian.PutUint64(s[32:], uint64(now.Sec+3600))
	put(path, s[:60])
	if s, ok := readSegment(path, vmClock); ok {
		t.Errorf("%+v of a short file", s)
	}
	put(path, s[:])
	if s, ok := readSegment(path, vmClock); !ok || !s.Synchronized || s.Error < time.Millisecond || s.Error > time.Second {
		t.Errorf("%+v, %v", s, ok)
	}
	// With support of markers, that of the virtual machine counts.
	s[72] = 1
	put(path, s[:])
	clock := make([]byte, 24)
	copy(clock, "VCLK")
	for _, marker := range []uint64{6, 7} {
		binary.LittleEndian.PutUint64(clock[16:], marker)
		put(vmClock, clock)
		if s, ok := readSegment(path, vmClock); !ok || s.Known != (marker == 7) {
			t.Errorf("marker %d: %+v, %v", marker, s, ok)
		}
	}
	clock[12] = 1 // being written, for ever
	put(vmClock, clock)
	if s, ok := readSegment(path, vmClock); !ok || s.Known {
		t.Errorf("odd sequence: %+v, %v", s, ok)
	}
	if err := os.Remove(vmClock); err != nil {
		t.Fatal(err)
	}
	if s, ok := readSegment(path, vmClock); !ok || s.Known {
		t.Errorf("no virtual clock: %+v, %v", s, ok)
	}
}

func TestKernelStatus(t *testing.T) {
	if s := kernelStatus(unix.TIME_OK, &unix.Timex{Maxerror: 1500}); s != (Status{Kernel, true, true, 1500 * time.Microsecond}) {
		t.Errorf("%+v", s)
	}
	for _, s := range []Status{
		kernelStatus(unix.TIME_ERROR, &unix.Timex{Maxerror: 1500}),
		kernelStatus(unix.TIME_OK, &unix.Timex{Maxerror: 16_000_000, Status: unix.STA_UNSYNC}),
	} {
		if s != (Status{Source: Kernel}) {
			t.Errorf("%+v", s)
		}
	}
	if s, ok := readKernel(); ok && s.Known != s.Synchronized {
		t.Errorf("%+v", s)
	}
}
