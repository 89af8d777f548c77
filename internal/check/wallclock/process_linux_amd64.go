package wallclock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

const (
	// stopTimeout bounds how long a process may take to stop.
	stopTimeout = 2 * time.Second
	stopPoll    = 200 * time.Microsecond
)

// Denied returns why clocks cannot be set here, or "".
var Denied = sync.OnceValue(func() string {
	err := try()
	if err != nil && !errors.Is(err, ErrBusy) { // then it is a matter of time
		return err.Error()
	}
	return ""
})

// try sets the clock of a process that does nothing.
func try() error {
	cmd := exec.Command("sleep", "60")
	if err := child.Start(cmd); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	return Set(cmd.Process.Pid, time.Hour)
}

// Set stops a process, and has its wall clock be ahead of the machine's by an offset. SIGCONT has the process go on, which
// the caller sends in any case. After [ErrBusy] nothing has changed; try again then. A process that has ended is no error.
// What the process forks from then on has the offset, too, but what is executed begins with a right clock.
func Set(pid int, offset time.Duration) error {
	v, err := own()
	if err == nil {
		err = v.set(pid, offset)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // it has ended
		return nil
	}
	return err
}

func (v *vdso) set(pid int, offset time.Duration) error {
	if err := stop(pid); err != nil {
		return err
	}
	image, at, err := readVDSO(pid)
	if err != nil || image == nil {
		return err
	}
	want := bytes.Clone(v.image)
	v.patch(want, offset)
	if len(image) == len(want) {
		v.patch(image, offset)
	}
	if !bytes.Equal(image, want) {
		return fmt.Errorf("process %d has another vDSO than this one: only the clocks of 64-bit programs can be set", pid)
	}
	counters, err := threads(pid, "syscall")
	if err != nil {
		return err
	}
	for _, words := range counters {
		pc, err := strconv.ParseUint(words[len(words)-1], 0, 64) // the last word; "running" if it is not known
		if err != nil || v.within(int(pc-uint64(at))) {
			return ErrBusy
		}
	}
	return withMemory(pid, os.O_WRONLY, func(memory *os.File) error {
		_, err := memory.WriteAt(want, at)
		return err
	})
}

// stop stops all threads of a process.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for late := time.Now().Add(stopTimeout); ; time.Sleep(stopPoll) {
		states, err := threads(pid, "stat")
		if err != nil || allStopped(states) {
			return err
		}
		if time.Now().After(late) {
			return ErrBusy
		}
	}
}

// allStopped reports whether all threads have stopped, or ended, given what their files "stat" say.
func allStopped(stats [][]string) bool {
	for _, words := range stats {
		if !strings.Contains("TtXZ", words[0]) {
			return false
		}
	}
	return true
}

// threads returns the words of a file of each thread of a process, of "stat" those that follow the name, which may hold anything.
func threads(pid int, file string) (list [][]string, err error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, file))
	if err == nil && len(paths) == 0 {
		err = fs.ErrNotExist
	}
	for _, path := range paths {
		text, failed := os.ReadFile(path)
		switch words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])); {
		case errors.Is(failed, fs.ErrNotExist) || errors.Is(failed, syscall.ESRCH): // the thread has ended
		case failed != nil:
			return nil, failed
		case len(words) > 0:
			list = append(list, words)
		}
	}
	return list, err
}

// readVDSO returns the vDSO of a process, and its address. It is nil if the process has no memory any more.
func readVDSO(pid int) (image []byte, at int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil || len(maps) == 0 {
		return nil, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || !strings.HasSuffix(line, " [vdso]\n") {
			continue
		}
		image = make([]byte, to-from)
		err := withMemory(pid, os.O_RDONLY, func(memory *os.File) error {
			_, err := memory.ReadAt(image, from)
			return err
		})
		return image, from, err
	}
	return nil, 0, fmt.Errorf("process %d has no vDSO", pid)
}

// withMemory calls do with the memory of a process.
func withMemory(pid, mode int, do func(*os.File) error) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), mode, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(memory), memory.Close())
}
