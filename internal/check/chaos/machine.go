//go:build linux

package chaos

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a measurement depends on.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Load is the load average of one minute.
	Load float64 `json:"load"`
	// SyncMS is the median time of an fdatasync after a write of 4 KiB, in the directory for the data.
	SyncMS float64 `json:"sync_ms"`
}

// ThisMachine describes the machine; dir is where nodes keep their data.
func ThisMachine(dir string) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Load: LoadAverage()}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(field) == "model name" {
			m.Model = strings.TrimSpace(value)
			break
		}
	}
	sync, err := syncTime(dir)
	m.SyncMS = milliseconds(sync)
	return m, err
}

// syncs is how many writes are measured.
const syncs = 51

func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var times []time.Duration
	for i := range syncs {
		began := time.Now()
		if _, err = f.WriteAt(make([]byte, 4096), int64(i)*4096); err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[syncs/2], nil
}

// LoadAverage returns the machine's load average of one minute, or 0.
func LoadAverage() (load float64) {
	b, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(b), &load)
	return load
}

// BusyLoops starts count processes that use all the processor time that they get, until the end of
// the test.
func BusyLoops(t testing.TB, count int) {
	t.Helper()
	for i := range count {
		runUntilEnd(t, fmt.Sprintf("busy loop %d", i+1), os.DevNull, nil, []string{"/bin/sh", "-c", "while :; do :; done"})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
