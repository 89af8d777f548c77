// Command go is the driver of the Go client, package client, for the conformance kit; conformance/README.md describes drivers.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/conformance"
)

func main() { drive(os.Stdin, os.Stdout) }

// features are those of the kit that the client has.
var features = []string{
	"connections", "queue_max", "credentials", "tls", "client_certificate", "above", "lazy", "events", "generator", "generator_clock", "clock",
}

// driver carries out commands.
type driver struct {
	mu         sync.Mutex // guards what follows, and out
	out        *json.Encoder
	clients    map[string]*driven
	generators map[string]*made
	clocks     map[string]*client.Clock
	running    map[int]context.CancelFunc
}

// driven is a client under test.
type driven struct {
	*client.Client
	mode   isotone.ReadMode
	secret atomic.Pointer[client.Credentials]
}

// made is a generator under test.
type made struct {
	*client.Generator
	now atomic.Int64 // its clock, if it has one of its own
}

// drive carries out the commands of in until it ends.
func drive(in io.Reader, out io.Writer) {
	d := &driver{
		out: json.NewEncoder(out), clients: map[string]*driven{}, generators: map[string]*made{}, clocks: map[string]*client.Clock{},
		running: map[int]context.CancelFunc{},
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var c conformance.Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, "a command that is none:", err)
			os.Exit(1)
		}
		d.begin(&c)
	}
	os.Exit(0) // with whatever is still under way
}

// begin carries out a command: on a goroutine of its own if that may take long.
func (d *driver) begin(c *conformance.Command) {
	switch c.Do {
	case "new", "call", "generator", "next", "clock", "interval", "stamp", "wait":
	default:
		d.answer(c, d.run(context.Background(), c))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.running[c.ID] = cancel
	d.mu.Unlock()
	began := make(chan struct{})
	go func() {
		ctx, end := context.WithTimeout(ctx, time.Duration(c.DeadlineMS)*time.Millisecond)
		defer end()
		close(began)
		reply := d.run(ctx, c)
		d.mu.Lock()
		delete(d.running, c.ID)
		d.mu.Unlock()
		cancel()
		d.answer(c, reply)
	}()
	<-began
}

func (d *driver) answer(c *conformance.Command, r conformance.Reply) {
	r.ID = c.ID
	d.write(r)
}

func (d *driver) write(r conformance.Reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(r)
}

// run carries out a command, and returns the answer without its ID.
func (d *driver) run(ctx context.Context, c *conformance.Command) conformance.Reply {
	result, err := d.do(ctx, c)
	if err != nil {
		return conformance.Reply{Error: codeOf(err), Message: err.Error()}
	}
	return conformance.Reply{OK: &result}
}

var errUnsupported = errors.New("unsupported")

// codeOf returns the code of an error.
func codeOf(err error) string {
	var told *isotone.Error
	switch {
	case errors.Is(err, errUnsupported):
		return "unsupported"
	case errors.As(err, &told):
		return string(told.Code)
	case errors.Is(err, client.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return string(isotone.CodeInternal)
}

func (d *driver) do(ctx context.Context, c *conformance.Command) (r conformance.Result, err error) {
	switch c.Do {
	case "hello":
		return conformance.Result{Protocol: conformance.ProtocolVersion, Client: "isotone-go", Version: version(), Features: features}, nil
	case "sync":
		return r, nil
	case "new":
		return r, d.open(ctx, c)
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		if cancel := d.running[c.Call]; cancel != nil {
			cancel()
		}
		return r, nil
	case "close":
		if got := find(d, d.clients, c.Client); got != nil {
			err = got.Close()
		}
		return r, err
	case "credentials":
		find(d, d.clients, c.Client).secret.Store(&client.Credentials{Name: c.User, Secret: c.Secret})
		return r, nil
	case "cluster":
		if id := find(d, d.clients, c.Client).Cluster(); id != 0 {
			r.Cluster = id.String()
		}
		return r, nil
	case "call":
		return call(ctx, find(d, d.clients, c.Client), c)
	case "generator", "now", "next", "try", "lease", "end":
		return d.generate(ctx, c)
	case "clock", "interval", "stamp", "past", "wait", "stop":
		return d.tell(ctx, c)
	}
	return r, fmt.Errorf("%w: the command %q", errUnsupported, c.Do)
}

// version returns that of the module.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return info.Main.Version
}

// find returns what has a name, or nil.
func find[T any](d *driver, in map[string]*T, name string) *T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return in[name]
}
