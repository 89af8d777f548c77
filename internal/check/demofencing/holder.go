package demofencing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
)

const (
	lockName = "demo/report"
	// holderTimeout bounds each order but that for the lock, for which a holder may have to wait until a session has ended.
	holderTimeout = 30 * time.Second
	// exitTimeout bounds the end of a process.
	exitTimeout = 20 * time.Second
	// lineMax bounds an order and a report in bytes.
	lineMax = 64 << 10
)

// order is what a holder is to do: take the lock, look whether it holds it, or write under it.
type order struct {
	Do string `json:"do"` // lock, check or write
	// Nodes, Redis and TTL are those of the lock.
	Nodes []string      `json:"nodes,omitempty"`
	Redis string        `json:"redis,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
	// Value is what is written.
	Value string `json:"value,omitempty"`
}

// report is the answer to an order.
type report struct {
	Token isotone.Timestamp64 `json:"token,omitempty"`
	// Held: the session believes that it holds the lock, after what was done.
	Held bool `json:"held,omitempty"`
	// Fence is where the fence is that has refused the write, as 32 hexadecimal digits; "": it was accepted.
	Fence string `json:"fence,omitempty"`
	Error string `json:"error,omitempty"`
}

// Hold is the program of a holder: it does what it is told on in, a line of JSON each, reports on out, and ends with in. A write does not look whether the lock is still held: a
// pause may follow each look.
func Hold(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, lineMax)
	h := &holding{}
	defer h.end()
	for lines.Scan() {
		var o order
		var r report
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			r, err = h.obey(ctx, o)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// holding is the state of a holder.
type holding struct {
	client  *client.Client
	session *client.Session
	mutex   *client.Mutex
	db      *redis
}

func (h *holding) obey(ctx context.Context, o order) (r report, err error) {
	if o.Do == "lock" {
		err = h.lock(ctx, o)
	}
	if err != nil || h.mutex == nil {
		return r, err
	}
	r.Token = h.mutex.Token64()
	if o.Do == "write" {
		if r.Fence, err = h.db.raise(r.Token.Timestamp(), keyFenced, o.Value); err == nil {
			_, err = h.db.do("SET", keyPlain, o.Value)
		}
	}
	r.Held = h.mutex.Check() == nil
	return r, err
}

// lock connects, and waits for the lock.
func (h *holding) lock(ctx context.Context, o order) (err error) {
	if h.db, err = openRedis(ctx, o.Redis); err != nil {
		return err
	}
	if h.client, err = client.New(ctx, o.Nodes...); err != nil {
		return err
	}
	if h.session, err = h.client.NewSession(ctx, client.SessionOptions{TTL: o.TTL}); err != nil {
		return err
	}
	mutex := h.session.Mutex(lockName)
	if _, err = mutex.Lock(ctx); err == nil {
		h.mutex = mutex
	}
	return err
}

// end ends the session, so that the lock is free at once.
func (h *holding) end() {
	if h.db != nil {
		h.db.close()
	}
	if h.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), exitTimeout/2)
		defer cancel()
		_ = h.session.Close(ctx) // or it ends after its TTL
	}
	if h.client != nil {
		_ = h.client.Close()
	}
}

// holder is a process that runs [Hold]. One goroutine uses it.
type holder struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	errs    child.Tail
	reports chan []byte // closed when there are no more
	ended   chan struct{}
}

// startHolder starts a process that holds nothing yet.
func startHolder(name string, command []string) (*holder, error) {
	h := &holder{name: name, cmd: exec.Command(command[0], command[1:]...), reports: make(chan []byte, 1), ended: make(chan struct{})}
	h.cmd.Env, h.cmd.Stderr = cluster.Inherited(), &h.errs
	in, err := h.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(h.cmd); err != nil {
		return nil, fmt.Errorf("start holder %s: %w", name, err)
	}
	h.in = in
	go func() {
		defer close(h.ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, lineMax)
		for lines.Scan() {
			h.reports <- append([]byte{}, lines.Bytes()...) // one for each order, of which one is under way
		}
		close(h.reports)
		_ = h.cmd.Wait() // who wants to know why it has ended reads errs
	}()
	return h, nil
}

// ask gives an order, and waits for the report.
func (h *holder) ask(ctx context.Context, o order) (report, error) {
	if err := h.tell(o); err != nil {
		return report{}, err
	}
	return h.hear(ctx, holderTimeout)
}

func (h *holder) tell(o order) error {
	if err := json.NewEncoder(h.in).Encode(o); err != nil {
		return fmt.Errorf("holder %s: %w: %s", h.name, err, h.errs.String())
	}
	return nil
}

// hear waits for the report of an order.
func (h *holder) hear(ctx context.Context, timeout time.Duration) (r report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("holder %s does not answer after %v", h.name, timeout))
	defer cancel()
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case line, ok := <-h.reports:
		if !ok {
			return r, fmt.Errorf("holder %s has ended: %s", h.name, h.errs.String())
		}
		if err = json.Unmarshal(line, &r); err == nil && r.Error != "" {
			err = errors.New(r.Error)
		}
		if err != nil {
			err = fmt.Errorf("holder %s: %w", h.name, err)
		}
		return r, err
	}
}

// signal sends a signal, unless the process has ended.
func (h *holder) signal(s os.Signal) error {
	if err := h.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v for holder %s: %w", s, h.name, err)
	}
	return nil
}

// end has the process end its session and exit.
func (h *holder) end() error {
	_ = h.in.Close() // it may have ended
	return h.wait()
}

// kill ends the process at once, also one that is paused.
func (h *holder) kill() error { return errors.Join(h.signal(os.Kill), h.wait()) }

func (h *holder) wait() error {
	select {
	case <-h.ended:
		return nil
	case <-time.After(exitTimeout):
		return fmt.Errorf("holder %s still runs after %v", h.name, exitTimeout)
	}
}
