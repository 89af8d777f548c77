package conformance

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/host/steady"
)

// stage is where one scenario is played: nodes, and clients of the driver under test.
type stage struct {
	ctx      context.Context
	driver   *driver
	patience time.Duration
	name     string
	log      func(string) // of all events; nil for none
	work     sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	seq     int           // of events
	trace   []string
	nodes   []*node
	cluster
	clients  map[string]string // the read mode of the options, by name
	names    int
	requests []*request
	calls    map[int]*call
	given    []*given
	received isotone.Timestamp // the largest timestamp that a client has received
	ids      map[uint64]bool
	events   []Reply
	faults   []Fault
	// What the client was told: its cluster ("" if that is its choice) and secret.
	pin, secret string
	secretive   bool // it has credentials
	keepsFloors bool // whether requests are checked for the floor
	still       bool // the client is idle, so nothing may come
	skipped     string
	clockState
}

// call is a command of which the scenario waits for the end.
type call struct {
	s                  *stage
	id                 int
	do, client, method string
	clock              string
	timestamp          isotone.Timestamp
	mode               string // "", QUORUM or LEASE
	count              uint64
	begun, end         int // places among the events; end is 0 until then
	begunAt, endedAt   time.Time
	deadline           time.Duration
	reply              Reply
	begunOn, endedOn   int64 // the steady clock
}

func (c *call) String() string {
	if c.do != "call" {
		return fmt.Sprintf("%s %d", c.do, c.id)
	}
	return fmt.Sprintf("call %d (%s of %d)", c.id, c.method, c.count)
}

func (c *call) isID() bool { return c.method == "id" || c.method == "ids" }

// broken is the panic of a scenario that cannot go on, because the client or the driver does not do what it waits for.
type broken struct{ text string }

// skipped is the panic of a scenario that cannot be played on this machine.
type skipped struct{ why string }

// traceMax bounds the events that are kept.
const traceMax = 400

func newStage(ctx context.Context, d *driver, name string, patience time.Duration, log func(string)) *stage {
	return &stage{
		ctx: ctx, driver: d, patience: patience, name: name, log: log, changed: make(chan struct{}), cluster: newCluster(),
		clients: map[string]string{}, calls: map[int]*call{}, ids: map[uint64]bool{}, pin: clusterID, keepsFloors: true,
		clockState: newClockState(),
	}
}

// event notes an event and returns its place.
func (s *stage) event(format string, args ...any) int {
	s.seq++
	s.note(format, args...)
	s.broadcast()
	return s.seq
}

// note adds a line to the trace.
func (s *stage) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if s.log != nil {
		s.log(line)
	}
	if len(s.trace) == traceMax {
		s.trace = append(s.trace[:0:0], s.trace[traceMax/2:]...)
	}
	s.trace = append(s.trace, line)
}

func (s *stage) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// hidden returns a request for the trace, without the secret.
func (s *stage) hidden(r *request) string {
	text := r.String()
	if s.secret != "" {
		text = strings.ReplaceAll(text, s.secret, "(secret)")
	}
	return text
}

// await waits until done, which is called with stage.mu locked.
func (s *stage) await(what string, done func() bool) {
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		ok, changed := done(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			panic(broken{fmt.Sprintf("waited %v in vain for %s", s.patience, what)})
		case <-s.driver.ended:
			panic(broken{fmt.Sprintf("%v, while the kit waited for %s: %s", s.driver.why, what, s.driver.complain)})
		case <-s.ctx.Done():
			panic(broken{"interrupted"})
		}
	}
}

// start starts nodes, all of one cluster, the first of which leads.
func (s *stage) start(count int) {
	for range count {
		s.add().start()
	}
}

// add adds a member that does not run yet.
func (s *stage) add() *node {
	port, err := ports.Free(1)
	if err != nil {
		panic(broken{err.Error()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &node{s: s, index: len(s.nodes), addr: fmt.Sprintf("127.0.0.1:%d", port), cluster: clusterID}
	s.nodes = append(s.nodes, n)
	s.members = append(s.members, n.index)
	return n
}

// change changes what nodes answer.
func (s *stage) change(what string, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.event("— %s", what)
}

// lead makes a node the leader; -1: there is none.
func (s *stage) lead(index int) {
	s.change(fmt.Sprintf("the leader is %d", index), func() { s.leader = index })
}

func (s *stage) addrs() (list []string) {
	for _, n := range s.nodes {
		list = append(list, n.addr)
	}
	return list
}

// begin sends a command, and returns it as a call.
func (s *stage) begin(c Command) *call {
	s.mu.Lock()
	c.ID = s.driver.reserve()
	begun := &call{s: s, id: c.ID, do: c.Do, client: c.Client, method: c.Method, clock: c.Clock, count: 1, deadline: time.Duration(c.DeadlineMS) * time.Millisecond}
	begun.timestamp, _ = isotone.ParseTimestamp(c.Timestamp)
	if c.Count != nil {
		begun.count = *c.Count
	}
	begun.mode = strings.ToUpper(cmp.Or(c.Mode, s.clients[c.Client]))
	s.calls[c.ID] = begun
	begun.begun = s.event("%s %s %s%s%s %s", begun, c.Client, c.Generator, c.Mode, c.Clock, c.Timestamp)
	begun.begunAt, begun.begunOn = time.Now(), steady.Exact()
	s.mu.Unlock()
	s.driver.write(c)
	return begun
}

// deliver takes what the driver writes.
func (s *stage) deliver(r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Event != "" {
		s.events = append(s.events, r)
		s.event("event %s %s %s", r.Event, r.Addr, r.Error)
		return
	}
	c := s.calls[r.ID]
	if c == nil || c.end != 0 {
		s.fault("driver", "an answer to command %d, which waits for none", r.ID)
		return
	}
	c.reply, c.endedAt, c.endedOn = r, time.Now(), steady.Exact()
	c.end = s.event("%s ends: %s %.200s", c, r.Error, r.Message)
	s.ended(c)
}

// wait waits for the end of a call.
func (c *call) wait() Reply {
	c.s.await("the end of "+c.String(), func() bool { return c.end != 0 })
	return c.reply
}

// want waits for the call, which must succeed.
func (c *call) want(rule string) *Result {
	if r := c.wait(); r.OK == nil {
		c.s.blame(rule, "%s failed: %s: %s", c, r.Error, r.Message)
		return &Result{}
	}
	return c.reply.OK
}

// wantAll requires that all calls are answered.
func wantAll(rule string, calls ...*call) {
	for _, call := range calls {
		call.want(rule)
	}
}

// fails waits for the call, which must fail with one of these errors.
func (c *call) fails(rule string, errs ...string) {
	r := c.wait()
	for _, err := range errs {
		if r.OK == nil && r.Error == err {
			return
		}
	}
	c.s.blame(rule, "%s: %q %s, want the error %s", c, r.Error, r.Message, strings.Join(errs, " or "))
}

// eventually repeats a call with a deadline until it fails with this error: before that the client may have learned nothing.
func (s *stage) eventually(rule, code string, begin func() *call) {
	for began := time.Now(); ; {
		c := begin()
		if r := c.wait(); r.Error != "deadline_exceeded" || time.Since(began) > s.patience {
			c.fails(rule, code)
			return
		}
	}
}

// blame is fault with the lock.
func (s *stage) blame(rule, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault(rule, format, args...)
}

// check blames the client unless ok.
func (s *stage) check(ok bool, rule, format string, args ...any) {
	if !ok {
		s.blame(rule, format, args...)
	}
}

// close ends all nodes, and waits for their goroutines. s.ctx must be done.
func (s *stage) close() {
	for _, n := range s.nodes {
		n.stop()
	}
	s.work.Wait()
}
