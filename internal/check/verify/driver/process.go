package driver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

const (
	// answerTimeout is how long a driver may take for an answer beyond the time that the system may take. That is a
	// fault: a driver answers, at the latest with an error, also while the machine is busy.
	answerTimeout = 30 * time.Second
	// endTimeout bounds how long a driver may take to end after its input has, or after its output has.
	endTimeout = 10 * time.Second
	// logTailMax is how much of its standard error an error quotes, in bytes.
	logTailMax = 2 << 10
)

// Process is a driver that runs. Any goroutine may call its methods. The first fault of the driver ends it, and is the
// error of all calls from then on.
type Process struct {
	// Name is used in messages.
	Name string

	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	log     *os.File
	closing atomic.Bool   // Close was called
	ended   chan struct{} // closed when the process has ended; then fault is set

	timed     atomic.Bool // all calls have times
	intervals atomic.Bool // and Last
	writing   sync.Mutex  // held while a request is written

	mu     sync.Mutex
	lastID uint64
	calls  map[uint64]chan Response // that wait for their answer, by id; each has room for one
	fault  error                    // the first
}

// Start starts a driver. Its standard error is appended to the file at logPath. End it by [Process.Close].
func Start(name, logPath string, command []string) (*Process, error) {
	p := &Process{Name: name, ended: make(chan struct{}), calls: map[uint64]chan Response{}}
	if len(command) == 0 {
		return nil, fmt.Errorf("start the driver %s: it has no command", name)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the driver %s: %w", name, err)
	}
	p.log = log
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stderr = log
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err = errors.Join(err1, err2); err == nil {
		err = child.Start(p.cmd)
	}
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start the driver %s: %w", name, err)
	}
	p.in, p.out = in, out
	go p.read()
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Close ends the driver by the end of its input, and waits until it has ended. It returns the first fault, if there
// was one. A driver that still waits for the system, as it may, is no fault.
func (p *Process) Close() error {
	p.closing.Store(true)
	_ = p.in.Close()
	timer := time.AfterFunc(endTimeout, func() {
		if p.owes() {
			_ = p.fail(errClosed)
			return
		}
		_ = p.fail(fmt.Errorf("did not end within %v of the end of its input", endTimeout))
	})
	defer timer.Stop()
	<-p.ended
	if err := p.broken(); !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// owes reports whether the driver has not answered all requests.
func (p *Process) owes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0
}

// broken returns the first fault, or nil.
func (p *Process) broken() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// errClosed is the fault of a driver that was closed.
var errClosed = errors.New("was closed")

// fail notes a fault, unless there was one, ends the process, and returns the first fault.
func (p *Process) fail(fault error) error {
	p.mu.Lock()
	if p.fault == nil {
		p.fault = fmt.Errorf("the driver %s %w", p.Name, fault)
	}
	first := p.fault
	p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	_, _ = p.in.Close(), p.out.Close() // neither a write nor the reading may wait for a process that the driver has started
	return first
}

// read passes on the answers until there are no more, and waits for the end of the process.
func (p *Process) read() {
	defer close(p.ended)
	defer p.log.Close()
	lines := bufio.NewReaderSize(p.out, lineBuffer)
	var err error
	for long := []byte(nil); err == nil; {
		var line []byte
		if line, err = readLine(lines, &long); err == nil {
			err = p.deliver(line)
		}
	}
	if !errors.Is(err, io.EOF) {
		_ = p.fail(fmt.Errorf("wrote %w", err))
	}
	timer := time.AfterFunc(endTimeout, func() { _ = p.fail(errors.New("has closed its output, and goes on")) })
	_ = p.cmd.Wait() // the state says more
	timer.Stop()
	_ = child.KillGroup(p.PID()) // what it has started goes on if it was killed
	if p.closing.Load() {
		_ = p.fail(errClosed)
	} else {
		_ = p.fail(fmt.Errorf("has ended by itself (%v): %w%s", p.cmd.ProcessState, err, p.tail()))
	}
}

// tail returns the end of what the driver has printed for people.
func (p *Process) tail() string {
	info, err := p.log.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	text := make([]byte, min(info.Size(), logTailMax))
	n, _ := p.log.ReadAt(text, info.Size()-int64(len(text)))
	return fmt.Sprintf("; the end of its standard error:\n%s", text[:n])
}

// deliver hands an answer to the call that waits for it.
func (p *Process) deliver(line []byte) error {
	answer, err := parseResponse(line)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	call, ok := p.calls[answer.ID]
	if !ok {
		return fmt.Errorf("%.*q: no request with this id waits for an answer", quoteMax, line)
	}
	delete(p.calls, answer.ID)
	call <- answer
	return nil
}

func parseResponse(line []byte) (answer Response, err error) {
	if answer, ok := scanAnswer(line); ok {
		return answer, nil
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return answer, fmt.Errorf("%.*q, which is no JSON of an answer: %w", quoteMax, line, err)
	}
	if (answer.OK == nil) == (answer.Error == "") {
		return answer, fmt.Errorf("%.*q: want either ok or error", quoteMax, line)
	}
	return answer, nil
}
