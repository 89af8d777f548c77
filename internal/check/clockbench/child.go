package clockbench

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

// process is a process of a run, as the command sees it. The methods are for one goroutine, except for
// tell.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	done   chan message // Ready, Failed and Done; closed at the end of its output
	read   sync.WaitGroup
	wrong  error        // why there is no more output; after done is closed
	wait   func() error // waits for its end, after its output has ended
	stderr child.Tail

	mu  sync.Mutex
	out *gob.Encoder
}

// newProcess starts a process. Its records go to collect, on another goroutine. When ctx ends, it is
// killed.
func newProcess(ctx context.Context, number int, cmd *exec.Cmd, collect func(int, message) error) (*process, error) {
	p := &process{number: number, cmd: cmd, done: make(chan message, 4)}
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		p.in, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	p.out = gob.NewEncoder(p.in)
	p.wait = sync.OnceValue(func() error {
		p.read.Wait()
		late := time.AfterFunc(graceTimeout, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		return cmd.Wait()
	})
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	p.read.Go(func() {
		defer stop()
		defer close(p.done)
		p.wrong = p.receive(out, collect)
		if p.wrong != io.EOF {
			_ = cmd.Process.Kill()
		}
		_, _ = io.Copy(io.Discard, out)
	})
	return p, nil
}

// receive passes on all that the process says.
func (p *process) receive(out io.Reader, collect func(int, message) error) error {
	for d := gob.NewDecoder(out); ; {
		var m message
		if err := d.Decode(&m); err != nil {
			return err
		}
		if err := collect(p.number, m); err != nil {
			return err
		}
		if m.Failed == "" && !m.Ready && m.Done == nil {
			continue
		}
		m.Operations, m.Reads = nil, nil
		select {
		case p.done <- m:
		default:
			return errors.New("it says more than it was asked")
		}
	}
}

// tell gives an order.
func (p *process) tell(o order) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(o); err != nil {
		return fmt.Errorf("process %d: %w%s", p.number, err, p.said())
	}
	return nil
}

// answer waits for the end of a phase, or for the start of the process.
func (p *process) answer(deadline time.Time) (*outcome, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case m, ok := <-p.done:
		switch {
		case !ok:
			if err := p.wait(); p.wrong == io.EOF && err != nil {
				p.wrong = err
			}
			return nil, fmt.Errorf("process %d ended: %w%s", p.number, p.wrong, p.said())
		case m.Failed != "":
			return nil, errors.New(m.Failed)
		}
		return m.Done, nil
	case <-timer.C:
		return nil, fmt.Errorf("process %d does not answer%s", p.number, p.said())
	}
}

// close has the process end, and waits for that.
func (p *process) close() error {
	_ = p.in.Close()
	late := time.AfterFunc(graceTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.read.Wait()
	if err := p.wait(); err != nil {
		return fmt.Errorf("process %d: %w%s", p.number, err, p.said())
	}
	return nil
}

// said returns the end of what the process has written to its standard error, behind a colon, or "".
func (p *process) said() string {
	if text := p.stderr.String(); text != "" {
		return ": " + text
	}
	return ""
}

// oneLine returns the message of an error without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
