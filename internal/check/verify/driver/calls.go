package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Hello greets the driver. It comes first.
func (p *Process) Hello(ctx context.Context, options map[string]string) (h Hello, err error) {
	if err = p.do(ctx, 0, Request{Do: "hello", Protocol: Protocol, Options: options}, &h); err != nil {
		return h, err
	}
	h.CountMax, h.TimesMax = max(h.CountMax, 1), max(h.TimesMax, 1)
	h.Nodes, h.NodesMax, h.Ports = max(h.Nodes, 1), max(h.NodesMax, h.Nodes, 1), max(h.Ports, 1)
	if err := h.check(); err != nil {
		return h, p.fail(err)
	}
	p.timed.Store(h.TimesMax > 1)
	p.intervals.Store(h.Promises == Intervals)
	return h, nil
}

// portsMax bounds Hello.Ports.
const portsMax = 16

// check checks what a run relies on: of a misspelt order, nothing would count as broken.
func (h *Hello) check() error {
	switch {
	case h.Protocol != Protocol:
		return fmt.Errorf("speaks version %d of the protocol: want %d", h.Protocol, Protocol)
	case !slices.Contains([]string{"unique", "client", "real-time", Intervals}, h.Promises):
		return fmt.Errorf("answered hello with the promise %.40q: want unique, client, real-time or intervals", h.Promises)
	case h.Ports > portsMax:
		return fmt.Errorf("answered hello with %d ports for each node: want at most %d", h.Ports, portsMax)
	}
	return nil
}

// Plan asks how the nodes are started.
func (p *Process) Plan(ctx context.Context, where PlanRequest, options map[string]string) (plan Plan, err error) {
	if err = p.do(ctx, 0, Request{Do: "plan", Plan: &where, Options: options}, &plan); err != nil {
		return plan, err
	}
	if len(plan.Nodes) != len(where.Nodes) {
		return plan, p.fail(fmt.Errorf("answered plan with %d nodes: want %d", len(plan.Nodes), len(where.Nodes)))
	}
	for i, n := range plan.Nodes {
		if len(n.Command.Command) == 0 || n.Address == "" {
			return plan, p.fail(fmt.Errorf("answered plan with no command or no address of node %d", i))
		}
		if other := slices.IndexFunc(plan.Nodes[:i], func(other NodeCommand) bool { return other.Address == n.Address }); other >= 0 {
			return plan, p.fail(fmt.Errorf("answered plan with one address, %.100q, of the nodes %d and %d", n.Address, other, i))
		}
	}
	for i, c := range plan.Prepare {
		if len(c.Command) == 0 {
			return plan, p.fail(fmt.Errorf("answered plan with no command at prepare[%d]", i))
		}
	}
	return plan, nil
}

// Connect says where the nodes are. It comes before Ready and Ask.
func (p *Process) Connect(ctx context.Context, addresses []string, options map[string]string) error {
	return p.do(ctx, 0, Request{Do: "connect", Addresses: addresses, Options: options}, nil)
}

// Ready asks whether a node can be asked for numbers, or, for one that never gives any, whether it is up.
func (p *Process) Ready(ctx context.Context, node int, timeout time.Duration) error {
	return p.do(ctx, timeout, Request{Do: "ready", Node: node, TimeoutMS: milliseconds(timeout)}, nil)
}

// Remove has the others no longer count a node as a member. It was started by a command, runs until then, and is not needed after that. The
// driver has to have said that it can.
func (p *Process) Remove(ctx context.Context, node int, start Command, timeout time.Duration) error {
	return p.do(ctx, timeout, Request{Do: "remove", Node: node, Start: &start, TimeoutMS: milliseconds(timeout)}, nil)
}

// Add makes a node that was removed, and does not run, a member without data. It returns the command that starts it from now on.
func (p *Process) Add(ctx context.Context, node int, start Command, timeout time.Duration) (Command, error) {
	var added Added
	if err := p.do(ctx, timeout, Request{Do: "add", Node: node, Start: &start, TimeoutMS: milliseconds(timeout)}, &added); err != nil {
		return start, err
	}
	if len(added.Start.Command) == 0 {
		return start, p.fail(errors.New("answered add with no command"))
	}
	return added.Start, nil
}

// AskRequest is what [Process.Ask] asks for.
type AskRequest struct {
	Node    int
	Client  int
	Count   uint64        // numbers in a call
	Times   int           // calls, at most; 1 unless Hello.TimesMax is more
	Timeout time.Duration // of a call; at least a millisecond
}

// Ask has a client ask for numbers. All calls of the answer have Began and Ended; the numbers are not checked
// against each other.
func (p *Process) Ask(ctx context.Context, ask AskRequest) (a Answer, err error) {
	r := Request{
		Do: "ask", Node: ask.Node, Client: ask.Client, Count: ask.Count, Times: ask.Times, TimeoutMS: milliseconds(ask.Timeout),
	}
	began := Now()
	if err = p.do(ctx, time.Duration(ask.Times)*ask.Timeout, r, &a); err != nil {
		return a, err
	}
	if err = p.check(ask, &a, began, Now()); err != nil {
		line, _ := json.Marshal(a) // it was JSON
		return Answer{}, p.fail(fmt.Errorf("answered ask with %.*q: %w", quoteMax, line, err))
	}
	return a, nil
}

// check checks the form of an answer that came between two readings of the clock, and completes it.
func (p *Process) check(ask AskRequest, a *Answer, began, ended int64) error {
	switch {
	case len(a.Calls) > ask.Times || len(a.Calls) == 0 && a.Failed == nil:
		return fmt.Errorf("want 1 to %d calls, or failed", ask.Times)
	case a.Failed != nil && a.Failed.Error != Unavailable && a.Failed.Error != Malformed:
		return errors.New("the error in failed: want unavailable or malformed")
	case !p.timed.Load() && ask.Times == 1 && len(a.Calls) == 1 && a.Calls[0].Began == 0 && a.Calls[0].Ended == 0:
		a.Calls[0].Began, a.Calls[0].Ended = began, ended
	}
	last := began
	for _, c := range a.Calls {
		if c.Began == 0 && c.Ended == 0 {
			return errors.New("a call has no began and ended: want them of each, or times_max of 1")
		}
		if c.Began < last || c.Ended < c.Began || c.Ended > ended {
			return fmt.Errorf("began and ended are not in order from %d to %d, the times of the request: are they nanoseconds of CLOCK_MONOTONIC?", began, ended)
		}
		last = c.Ended
		if c.Count != ask.Count {
			return fmt.Errorf("count: want %d", ask.Count)
		}
		if (c.Last != "") != p.intervals.Load() {
			return errors.New("last: want it with the promise intervals, and with no other")
		}
	}
	return nil
}

// milliseconds returns a duration rounded up: a timeout of 0 stands for none.
func milliseconds(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }

// do makes a request that the system may take some time for, and decodes what is answered. If ctx is done before, a driver that answers
// without the system is ended at once: it has nothing to leave behind, and no excuse to be silent.
func (p *Process) do(ctx context.Context, timeout time.Duration, r Request, into any) error {
	answered := make(chan Response, 1)
	if err := p.enter(&r, answered); err != nil {
		return err
	}
	asksSystem := timeout > 0
	timeout += answerTimeout
	timer := time.AfterFunc(timeout, func() {
		_ = p.fail(fmt.Errorf("did not answer %s (id %d) within %v%s", r.Do, r.ID, timeout, p.tail()))
	})
	defer timer.Stop()
	p.write(r)
	select {
	case answer := <-answered:
		return p.decode(r, answer, into)
	case <-p.ended:
	case <-ctx.Done():
		if !asksSystem {
			_ = p.fail(ctx.Err())
		}
		return ctx.Err() // the answer is still expected, and dropped
	}
	select {
	case answer := <-answered: // the last one
		return p.decode(r, answer, into)
	default:
		return p.broken()
	}
}

// enter gives the request its id.
func (p *Process) enter(r *Request, answered chan Response) error {
	if err := p.broken(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	r.ID = p.lastID
	p.calls[r.ID] = answered
	return nil
}

// write writes a request. If the driver has ended, its output has.
func (p *Process) write(r Request) {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // a Request has nothing that JSON lacks
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, _ = p.in.Write(append(line, '\n'))
}

// decode takes an answer apart.
func (p *Process) decode(r Request, answer Response, into any) error {
	switch answer.Error {
	case "":
	case Unavailable, Malformed, Invalid:
		return &Error{Kind: answer.Error, Message: answer.Message}
	default:
		return p.fail(fmt.Errorf("answered %s with the error %.60q: want unavailable, malformed or invalid", r.Do, answer.Error))
	}
	if into == nil {
		return nil
	}
	if answer.calls != nil {
		a, ok := into.(*Answer)
		if !ok {
			return p.fail(fmt.Errorf("answered %s with calls", r.Do))
		}
		a.Calls = answer.calls
		return nil
	}
	if err := json.Unmarshal(answer.OK, into); err != nil {
		return p.fail(fmt.Errorf("answered %s with %.*q: %w", r.Do, quoteMax, answer.OK, err))
	}
	return nil
}
