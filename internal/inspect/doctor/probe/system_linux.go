package probe

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/inspect/doctor"
)

func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// space sets what is free on the file system of d.Dir.
func space(d *doctor.Disk) error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.Dir, &s); err != nil {
		return &os.PathError{Op: "statfs", Path: d.Dir, Err: err}
	}
	d.Free, d.FreeKnown = s.Bavail*uint64(s.Bsize), true
	d.FreeFiles, d.FreeFilesKnown = s.Ffree, s.Files > 0 // some file systems do not count them
	return nil
}

// systemClock reads what the kernel knows of its clock (adjtimex(2)), without changing it.
func systemClock() doctor.Clock {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return doctor.Clock{} // not allowed in some containers
	}
	return doctor.Clock{
		Known:        true,
		Synchronized: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		ErrorMax:     time.Duration(t.Maxerror) * time.Microsecond,
	}
}

func limits() doctor.Limits {
	l := doctor.Limits{Processors: runtime.GOMAXPROCS(0), Memory: availableMemory()}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		l.Files = files.Cur // the runtime has raised it to the hard limit, as in a node
	}
	l.Backlog = int(readNumber("/proc/sys/net/core/somaxconn"))
	return l
}

// availableMemory is that of the machine or of the control group, whichever has less.
func availableMemory() uint64 {
	available := field("/proc/meminfo", "MemAvailable:") << 10
	limit, used := readNumber("/sys/fs/cgroup/memory.max"), readNumber("/sys/fs/cgroup/memory.current")
	if limit == 0 {
		return available
	}
	used -= min(used, field("/sys/fs/cgroup/memory.stat", "inactive_file"))
	return min(available, limit-min(limit, used))
}

// readNumber returns the number in a file, 0 if there is none.
func readNumber(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// field returns the number after a name at the beginning of a line, 0 if there is none.
func field(path, name string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			n, _ := strconv.ParseUint(words[1], 10, 64)
			return n
		}
	}
	return 0
}
