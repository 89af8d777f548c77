package wallclock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/wallclock"
)

// role has this binary be a process whose clock is set: "tell" tells the time, "spin" reads it in many threads.
const role = "ISOTONE_TEST_WALLCLOCK"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "tell":
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println("wall", time.Now().UnixNano())
		}
	case "spin":
		spin()
	}
}

// python tells the time by all functions and clocks of the vDSO. It has a forked process tell it when it is asked to.
const python = `
import ctypes, os, sys
c = ctypes.CDLL(None)
c.time.restype = ctypes.c_long
two = ctypes.c_long * 2
def tell():
    t = two()
    for name, clock in ("wall", 0), ("tai", 11), ("coarse", 5), ("steady", 1):
        c.clock_gettime(clock, t)
        print(name, t[0] * 10**9 + t[1], end=" ")
    c.gettimeofday(t, None)
    print("micros", t[0] * 10**9 + t[1] * 1000, "seconds", c.time(None) * 10**9, flush=True)
for line in sys.stdin:
    if "fork" not in line:
        tell()
    elif os.fork() == 0:
        tell()
        os._exit(0)
    else:
        os.wait()
`

// needsClocks skips a test where clocks cannot be set: in containers that deny ptrace, and with a kernel whose vDSO has another form.
// TestDenied_OnlyForAReason says when that is so.
func needsClocks(t *testing.T) {
	t.Helper()
	if why := wallclock.Denied(); why != "" {
		t.Skip(why)
	}
}

// program is a process that tells the time.
type program struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, command string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(command, args...)}
	p.Env, p.Stderr = append(os.Environ(), role+"=tell"), os.Stderr
	in, err := p.StdinPipe()
	out, err2 := p.StdoutPipe()
	if err := errors.Join(err, err2, child.Start(p.Cmd)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	p.in, p.out = in, bufio.NewReader(out)
	return p
}

// ask returns by what name the program has which time.
func (p *program) ask(t *testing.T, how string) map[string]int64 {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, how); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int64{}
	for words := strings.Fields(line); len(words) > 1; words = words[2:] {
		var value int64
		if _, err := fmt.Sscan(words[1], &value); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		told[words[0]] = value
	}
	return told
}

// set sets the clock of a process.
func set(t *testing.T, pid int, offset time.Duration) {
	t.Helper()
	for err := wallclock.ErrBusy; err != nil; {
		err = wallclock.Set(pid, offset)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err != nil && !errors.Is(err, wallclock.ErrBusy) {
			t.Fatal(err)
		}
	}
}

// readings returns what the clocks of this machine show, by the names that programs use, without the vDSO.
func readings() map[string]int64 {
	list := map[string]int64{}
	for name, clock := range map[string]int32{"wall": unix.CLOCK_REALTIME, "tai": unix.CLOCK_TAI, "coarse": unix.CLOCK_REALTIME_COARSE, "steady": unix.CLOCK_MONOTONIC} {
		var ts unix.Timespec
		_ = unix.ClockGettime(clock, &ts)
		list[name] = ts.Nano()
	}
	list["micros"], list["seconds"] = list["wall"], list["coarse"]
	return list
}

// units are those of clocks that do not count nanoseconds.
var units = map[string]int64{"micros": 1e3, "seconds": 1e9}

// wantOff checks that all wall clocks of a program are off by so much, and its steady clock is not.
func wantOff(t *testing.T, p *program, how string, offset time.Duration) {
	t.Helper()
	before := readings()
	told := p.ask(t, how)
	after := readings()
	if len(told) == 0 {
		t.Fatal("it tells nothing")
	}
	for name, got := range told {
		unit, off := max(units[name], 1), int64(offset)
		if name == "steady" {
			off = 0
		}
		low, high := (before[name]+off)/unit*unit, (after[name]+off)/unit*unit
		if got < low || got > high {
			t.Errorf("set by %v (%s): %s is %d, want %d to %d: %v too early, %v too late", offset, how, name, got, low, high, time.Duration(low-got), time.Duration(got-high))
		}
	}
}

// TestSet_AheadBehindAndRight in programs in Go and in C, which read the clock in their own ways.
func TestSet_AheadBehindAndRight(t *testing.T) {
	t.Parallel()
	needsClocks(t)
	for language, command := range map[string][]string{"Go": {"/proc/self/exe"}, "C": {"python3", "-c", python}} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip("python3, which calls functions in C, is not installed")
			}
			p := start(t, path, command[1:]...)
			wantOff(t, p, "before", 0)
			for _, offset := range []time.Duration{time.Hour, -time.Hour, 10 * time.Millisecond, -10 * time.Millisecond, 999 * time.Millisecond, -999 * time.Millisecond, 0} {
				set(t, p.Process.Pid, offset)
				for range 50 { // of which the fraction of the second is another each time
					wantOff(t, p, "set", offset)
				}
			}
		})
	}
}

// TestSet_IsInherited by what the process forks, and ends with what it executes.
func TestSet_IsInherited(t *testing.T) {
	t.Parallel()
	needsClocks(t)
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3, which forks, is not installed")
	}
	p := start(t, path, "-c", python)
	p.ask(t, "once it runs")
	set(t, p.Process.Pid, -time.Hour)
	wantOff(t, p, "fork", -time.Hour)

	shell := start(t, "sh", "-c", `echo ready; read -r _; exec "$0" -c "$1"`, path, python)
	if _, err := shell.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	set(t, shell.Process.Pid, time.Hour)
	shell.ask(t, "execute\nand tell")
	wantOff(t, shell, "executed", 0)
}

// TestSet_WhileThreadsRead the clock all the time: each reading has one of the offsets, and nothing crashes.
func TestSet_WhileThreadsRead(t *testing.T) {
	t.Parallel()
	needsClocks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), role+"=spin")
	out, err := cmd.StdoutPipe()
	in, err2 := cmd.StdinPipe()
	if err := errors.Join(err, err2, child.Start(cmd)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	for range 2 { // all threads read before the first switch, and go on after the last
		if line, err := lines.ReadString('\n'); line != "all threads read\n" {
			t.Fatalf("%q, %v", line, err)
		}
		for i := range switches / 2 {
			set(t, cmd.Process.Pid, offsets[i%len(offsets)])
		}
		fmt.Fprintln(in)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "that is all\n" || err != nil {
		t.Errorf("%s, %v", rest, err)
	}
}

const (
	switches = 1000
	spinners = 8
)

var offsets = []time.Duration{time.Hour, -time.Hour, 1234567 * time.Microsecond, 0}

// spin reads the clock in many threads, until two lines were read, and tells about it.
func spin() {
	began := newReading()
	reads, wrongs, stop := make(chan bool), make(chan string), make(chan bool)
	for range spinners {
		go func() {
			runtime.LockOSThread()
			for wrong := ""; ; {
				select {
				case <-stop:
					wrongs <- wrong
					return
				case reads <- true:
				default:
				}
				if w := newReading().wrong(began); w != "" {
					wrong = w
				}
			}
		}()
	}
	input := bufio.NewReader(os.Stdin)
	for range 2 {
		for range spinners {
			<-reads
		}
		fmt.Println("all threads read")
		_, _ = input.ReadString('\n')
	}
	close(stop)
	for range spinners {
		fmt.Print(<-wrongs)
	}
	fmt.Println("that is all")
}

// reading is the time between two readings by system calls.
type reading struct {
	before, after map[string]int64
	at            time.Time
}

func newReading() (r reading) {
	r.before, r.at, r.after = readings(), time.Now(), readings()
	return r
}

// wrong says by how much the wall clock is off all offsets, or the steady clock at all, since an earlier reading.
func (r reading) wrong(began reading) string {
	since := r.at.Sub(began.at).Nanoseconds()
	if since < r.before["steady"]-began.after["steady"] || since > r.after["steady"]-began.before["steady"] {
		return fmt.Sprintf("steady: %v since the start; %+v, %+v\n", time.Duration(since), began, r)
	}
	for _, offset := range offsets {
		if at := r.at.UnixNano() - int64(offset); at >= r.before["wall"] && at <= r.after["wall"] {
			return ""
		}
	}
	return fmt.Sprintf("wall: %+v\n", r)
}

// TestSet_OfWhatHasEnded is no error, and of what has another vDSO it is.
func TestSet_OfWhatHasEnded(t *testing.T) {
	t.Parallel()
	needsClocks(t)
	p := start(t, "true")
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := wallclock.Set(p.Process.Pid, time.Hour); err != nil {
		t.Errorf("ended: %v", err)
	}
	zombie := start(t, "true")
	if _, err := zombie.out.ReadString('\n'); err != io.EOF {
		t.Fatal(err)
	}
	if err := wallclock.Set(zombie.Process.Pid, time.Hour); err != nil {
		t.Errorf("nobody has waited for it: %v", err)
	}
}

// TestSet_OfWhatDoesNotStop: a thread that waits for the process that it has started, which has stopped, too.
func TestSet_OfWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	needsClocks(t)
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3, which calls clone, is not installed")
	}
	const script = `
import ctypes, os, signal
CLONE_VFORK = 0x4000
child = ctypes.CDLL(None).syscall(56, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    print("child", os.getpid(), flush=True)
    signal.pause()
`
	p := start(t, path, "-c", script)
	waits := p.ask(t, "")["child"]
	if err := wallclock.Set(p.Process.Pid, time.Hour); !errors.Is(err, wallclock.ErrBusy) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(syscall.Kill(p.Process.Pid, syscall.SIGCONT), syscall.Kill(int(waits), syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	set(t, p.Process.Pid, time.Hour)
}
