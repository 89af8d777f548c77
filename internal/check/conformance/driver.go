package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

// endTimeout bounds how long a driver may take to end after its input has.
const endTimeout = 10 * time.Second

// driver is a connection to a driver. One scenario at a time uses it.
type driver struct {
	in       io.WriteCloser
	hello    Result
	ended    chan struct{} // closed when its output has ended
	why      error         // of that; valid once ended is closed
	stop     func()        // ends the process by the end of its input, and waits for it
	kill     func()
	reap     func() // called when its output has ended
	complain *child.Tail

	mu      sync.Mutex
	nextID  int
	deliver func(Reply) // to the scenario under way
}

// startDriver starts the process of a driver, and waits for its hello.
func startDriver(ctx context.Context, command []string, patience time.Duration) (*driver, error) {
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d := newDriver(in)
	cmd.Stderr = d.complain
	if err := child.Start(cmd); err != nil {
		return nil, fmt.Errorf("the driver: %w", err)
	}
	d.kill = func() { _ = cmd.Process.Kill() }
	d.stop = func() {
		_ = in.Close()
		kill := time.AfterFunc(endTimeout, d.kill)
		<-d.ended
		kill.Stop()
	}
	// Its standard error is complete once Wait has returned.
	d.reap = func() {
		d.kill()
		_ = cmd.Wait()
	}
	cmd.WaitDelay = endTimeout
	go d.read(out)
	if err := d.greet(ctx, patience); err != nil {
		d.kill()
		d.stop()
		return nil, err
	}
	return d, nil
}

func newDriver(in io.WriteCloser) *driver {
	return &driver{in: in, ended: make(chan struct{}), stop: func() {}, kill: func() {}, reap: func() {}, complain: &child.Tail{}}
}

// read passes on what the driver writes until its output ends.
func (d *driver) read(out io.Reader) {
	defer close(d.ended)
	defer d.reap()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		var r Reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			d.why = fmt.Errorf("the driver wrote %.200q, which is no JSON of an answer: %w", lines.Text(), err)
			_, _ = io.Copy(io.Discard, out)
			return
		}
		d.mu.Lock()
		deliver := d.deliver
		d.mu.Unlock()
		if deliver != nil {
			deliver(r)
		}
	}
	d.why = errors.Join(errors.New("the driver has ended"), lines.Err())
}

// greet exchanges hellos.
func (d *driver) greet(ctx context.Context, patience time.Duration) error {
	replies := make(chan Reply, 1)
	d.serve(func(r Reply) {
		select {
		case replies <- r:
		default:
		}
	})
	defer d.serve(nil)
	d.write(Command{ID: d.reserve(), Do: "hello", Protocol: ProtocolVersion})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-replies:
		if r.OK == nil || r.OK.Protocol != ProtocolVersion {
			return fmt.Errorf("the driver answers hello with protocol %+v %s %s: want %d", r.OK, r.Error, r.Message, ProtocolVersion)
		}
		d.hello = *r.OK
		return nil
	case <-d.ended:
		return fmt.Errorf("%w before it answered hello: %s", d.why, d.complain)
	case <-timer.C:
		return fmt.Errorf("the driver did not answer hello within %v", patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve names who gets what the driver writes.
func (d *driver) serve(deliver func(Reply)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deliver = deliver
}

// reserve returns an ID for a command that write is to send.
func (d *driver) reserve() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextID++
	return d.nextID
}

// write sends a command. A driver that has ended is noticed by its output.
func (d *driver) write(c Command) {
	line, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	_, _ = d.in.Write(append(line, '\n'))
}

// lacks returns the first of the features that the driver does not name.
func (d *driver) lacks(features []string) string {
	for _, f := range features {
		if !slices.Contains(d.hello.Features, f) {
			return f
		}
	}
	return ""
}
