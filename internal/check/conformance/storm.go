package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	processes "github.com/isotone/isotone/internal/check/cluster"
)

// Defaults of [Storm].
const (
	StormCallersDefault  = 8
	StormDeadlineDefault = 2 * time.Second
	StormPauseDefault    = 10 * time.Millisecond
)

// stormNodes is the smallest number that survives the loss of one.
const stormNodes = 3

// Storm is what [RunStorm] runs: real nodes that are restarted, then killed, while clients call them.
type Storm struct {
	Isotone  []string   // the command that " serve" is appended to
	Dir      string     // gets the data and logs of the nodes
	Drivers  [][]string // their command lines, one for each client
	Callers  int        // of each client, with one call under way each; 0: StormCallersDefault
	Deadline time.Duration
	Pause    time.Duration // between an answer and the next call of a caller
	Rolls    int           // how often all nodes are restarted (SIGTERM), one after the other
	Kills    int           // how often a node is killed (SIGKILL): the leader every second time, any node otherwise
	Log      func(string)  // called with each event; may be nil
}

// StormReport is that of a storm.
type StormReport struct {
	Took                     time.Duration
	Restarts, Kills, Leaders int // Leaders are the kills of a leader
	Clients                  []StormClient
}

// Err returns an error unless all calls were answered in time, and rightly.
func (r *StormReport) Err() error {
	var faults []error
	for _, c := range r.Clients {
		if c.Failed > 0 || c.Wrong > 0 || c.Calls == 0 {
			faults = append(faults, fmt.Errorf("%s: %d calls, of which %d failed and %d were answered wrongly", c.Client, c.Calls, c.Failed, c.Wrong))
		}
	}
	if len(r.Clients) == 0 {
		faults = append(faults, errors.New("no client was tested"))
	}
	return errors.Join(faults...)
}

// storm is the state of a storm.
type storm struct {
	Storm
	nodes  *processes.Cluster
	judge  *stormJudge
	load   sync.WaitGroup
	report *StormReport
	tested []*stormClient
}

// RunStorm runs a storm, and returns what clients saw, also if it is interrupted. An error says that the storm itself
// failed; [StormReport.Err] judges the clients. When it returns, all processes have ended.
func RunStorm(ctx context.Context, o Storm) (r *StormReport, err error) {
	s := &storm{Storm: o, judge: newStormJudge(), report: &StormReport{}}
	if s.Callers == 0 {
		s.Callers = StormCallersDefault
	}
	if s.nodes, err = processes.New(stormNodes, o.Dir, o.Isotone); err != nil {
		return s.report, err
	}
	defer func() { err = errors.Join(err, s.nodes.Kill()) }()
	if err := errors.Join(s.nodes.Start(), s.nodes.WaitReady(ctx)); err != nil {
		return s.report, err
	}
	defer s.end()
	if err := s.open(ctx); err != nil {
		return s.report, err
	}
	began, calling := time.Now(), make(chan struct{})
	for _, c := range s.tested {
		for range s.Callers {
			s.load.Go(func() { c.call(calling) })
		}
	}
	err = s.breakNodes(ctx)
	close(calling)
	s.load.Wait()
	s.report.Took = time.Since(began)
	for _, c := range s.tested {
		s.report.Clients = append(s.report.Clients, c.tally)
	}
	return s.report, err
}

// open starts the drivers and makes a client with each.
func (s *storm) open(ctx context.Context) error {
	for _, command := range s.Drivers {
		d, err := startDriver(ctx, command, PatienceDefault)
		if err != nil {
			return err
		}
		c := newStormClient(d, s.judge, s.Deadline, s.Pause)
		s.tested = append(s.tested, c)
		made := c.do(Command{Do: "new", Client: stormClientName, Options: &Options{Addrs: s.nodes.Addrs()}, DeadlineMS: PatienceDefault.Milliseconds()}, PatienceDefault)
		if made.OK == nil {
			return fmt.Errorf("%s: no client was made: %s: %s", c.tally.Client, made.Error, made.Message)
		}
	}
	return nil
}

// end ends the drivers.
func (s *storm) end() {
	for _, c := range s.tested {
		c.stop()
	}
}

// breakNodes restarts and kills nodes. Before each time all nodes are ready, and all clients have called since the time before.
func (s *storm) breakNodes(ctx context.Context) error {
	if err := s.more(ctx); err != nil {
		return err
	}
	for i := range s.Rolls {
		for _, n := range s.nodes.Nodes {
			s.event("restart %d of node %d", i+1, n.ID)
			if err := s.again(ctx, n, n.Stop); err != nil {
				return err
			}
			s.report.Restarts++
		}
	}
	for i := range s.Kills {
		if err := s.kill(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// kill kills a node for the time i, from 0.
func (s *storm) kill(ctx context.Context, i int) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	n, what := leader, "which leads"
	if i%2 == 1 {
		n, what = s.nodes.Nodes[rand.IntN(stormNodes)], "drawn at random"
	}
	s.event("kill %d, of node %d, %s", i+1, n.ID, what)
	if err := s.again(ctx, n, n.Kill); err != nil {
		return err
	}
	s.report.Kills++
	if n == leader {
		s.report.Leaders++
	}
	return nil
}

func (s *storm) event(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.judge.event.Store(&text)
	if s.Log != nil {
		s.Log(text)
	}
}

// again ends a node and starts it, and waits until all are as before.
func (s *storm) again(ctx context.Context, n *processes.Node, end func() error) error {
	if !n.Running() {
		return n.Fault()
	}
	if err := errors.Join(end(), n.Start(), s.nodes.WaitReady(ctx)); err != nil {
		return err
	}
	return s.more(ctx)
}

// more waits until all clients have called.
func (s *storm) more(ctx context.Context) error {
	for _, c := range s.tested {
		if err := c.more(ctx, uint64(s.Callers)); err != nil {
			return err
		}
	}
	return nil
}

// leader waits for a node that says that it leads.
func (s *storm) leader(ctx context.Context) (leader *processes.Node, err error) {
	err = poll(ctx, "no node leads", func() (bool, error) {
		var term uint64
		for _, n := range s.nodes.Nodes {
			if m, err := n.Members(ctx); err == nil && m.Role == "leader" && m.Term > term {
				leader, term = n, m.Term
			}
		}
		return leader != nil, nil
	})
	return leader, err
}

// poll waits until done, for at most [processes.ReadyTimeout].
func poll(ctx context.Context, fault string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, processes.ReadyTimeout, fmt.Errorf("%s after %v", fault, processes.ReadyTimeout))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(processes.PollInterval):
		}
	}
}
