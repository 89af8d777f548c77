//go:build linux

package membership_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// stepRun kills within commands of one cluster.
type stepRun struct {
	t      *testing.T
	c      *chaos.Cluster
	l      memberLoad
	voters *voterWatch
	// kills counts processes that were killed, repeated commands that were run again, late
	// commands that had ended before they could be killed.
	kills, repeated, late int
}

// nodesOfSteps: of five voters one may have lost its disk while another is killed.
const nodesOfSteps = 5

func newStepRun(t *testing.T) *stepRun {
	o := trial.Options()
	o.Nodes, o.FaultSteps = nodesOfSteps, true
	c := chaos.StartCluster(t, o)
	return &stepRun{t: t, c: c, l: startMemberLoad(t, c), voters: watchVoters(t)}
}

func (s *stepRun) end() {
	s.voters.end(s.t)
	s.l.Verify(s.t)
	s.t.Logf("%d processes killed, %d commands repeated; %d commands had ended before they could be killed", s.kills, s.repeated, s.late)
}

// strike runs a command, stops a node at a step, and kills a victim there. On a busy machine another
// node may be elected in between, and the command takes another way: then it is run once more.
func (s *stepRun) strike(cmd *stepCommand, k killStep, v victim) {
	s.t.Helper()
	for range stepAttempts {
		if s.tryStrike(cmd, k, v) {
			return
		}
		s.t.Logf("%s, %s: the step was not reached", cmd.name, k)
	}
	s.t.Fatalf("%s, %s: the step was not reached in %d runs of the command", cmd.name, k, stepAttempts)
}

func (s *stepRun) tryStrike(cmd *stepCommand, k killStep, v victim) (reached bool) {
	s.t.Helper()
	began := time.Now()
	g := cmd.prepare(s)
	if g.leader == nil {
		g.leader = s.c.WaitLeader()
	}
	s.voters.watch(s.c)
	o, reached := s.killAt(k, v, &g)
	err := o.wait()
	switch {
	case err != nil && !reached:
		s.t.Fatalf("%s, %s, and nothing was killed: %v", cmd.name, k, err)
	case err == nil && v == theTerminal && reached:
		s.late++
	case reached:
		s.kills++
	}
	if err != nil {
		s.again(cmd, k, v, &g, err)
	}
	cmd.finish(s, &g)
	settled(s.t, s.c, s.l)
	if !reached {
		return false
	}
	s.t.Logf("%s, %s, %s is killed: %v", cmd.name, k, v, time.Since(began).Round(time.Millisecond))
	return true
}

// killAt starts a command and kills the victim at the step. If that is a node, it starts it again.
func (s *stepRun) killAt(k killStep, v victim, g *target) (o *operation, reached bool) {
	s.t.Helper()
	who := k.who
	if who == "node" {
		who = id(g.node)
	}
	s.c.StopAt(who, k.at)
	if g.start {
		g.node.Start()
	}
	o = start(s.t, s.c, g.args...)
	stopped := s.c.WaitStopped(stepTimeout)
	if stopped == nil {
		return o, false
	}
	killed := map[victim]*chaos.Node{theLeader: g.leader, theNode: g.node, theOld: g.old, theStopped: stopped}[v]
	if v == theTerminal {
		o.kill()
	} else {
		killed.Kill()
	}
	if stopped != killed {
		stopped.Cont()
	}
	if killed != nil {
		killed.Start()
	}
	g.killed = killed != nil && killed == g.node
	return o, true
}

// again repeats a command that has failed, which is right if it was killed itself.
func (s *stepRun) again(cmd *stepCommand, k killStep, v victim, g *target, err error) {
	s.t.Helper()
	may := v == theTerminal
	for _, m := range cmd.mayFail {
		may = may || m == v
	}
	if !may {
		s.t.Errorf("%s, %s, %s was killed: %v", cmd.name, k, v, err)
	}
	s.repeated++
	if strings.HasPrefix(cmd.name, "drain") {
		return // see drainedEnds
	}
	if v != theTerminal {
		s.c.Settle() // as the error says: when it is back
	}
	if err := start(s.t, s.c, g.args...).wait(); err != nil {
		s.t.Errorf("%s, %s, %s was killed, and the command is repeated: %v", cmd.name, k, v, err)
	}
}

// follower returns a node that runs and does not lead.
func (s *stepRun) follower() *chaos.Node {
	s.t.Helper()
	return running(s.c, s.c.WaitLeader())[0]
}

// generation returns that of the newest member of a node, and how many members the node has.
func (s *stepRun) generation(n *chaos.Node) (newest uint64, count int) {
	s.t.Helper()
	members, _ := memberList(s.t, s.c)
	for _, m := range members {
		if m.NodeID == n.ID {
			newest, count = max(newest, m.Generation), count+1
		}
	}
	return newest, count
}

func (s *stepRun) joiner(flags ...string) target {
	n := s.c.Joiner()
	return target{node: n, start: true, args: append([]string{"member", "add", id(n), n.RaftAddr}, flags...)}
}

// learner prepares a node that has joined and is to be promoted.
func (s *stepRun) learner() target {
	n := s.c.Joiner()
	n.Start()
	operate(s.t, s.c, "member", "add", id(n), n.RaftAddr, "--learner")
	n.WaitReady(chaos.ReadyTimeout)
	return target{node: n, args: []string{"member", "promote", id(n)}}
}

// sixth prepares a sixth voter, which is removed.
func (s *stepRun) sixth() target {
	n := s.c.Joiner()
	n.Start()
	operate(s.t, s.c, "member", "add", id(n), n.RaftAddr, "--voter")
	settled(s.t, s.c, s.l)
	return target{node: n, args: []string{"member", "remove", id(n)}}
}

// sixthLeads prepares a sixth voter, and the leader is removed.
func (s *stepRun) sixthLeads() target {
	s.sixth()
	n := s.c.WaitLeader()
	return target{node: n, args: []string{"member", "remove", id(n)}}
}

func (s *stepRun) lostDisk() target {
	n := s.follower()
	before, _ := s.generation(n)
	n.Kill()
	s.c.LoseDisk(n)
	return target{node: n, start: true, before: before, args: []string{"member", "replace", id(n), n.RaftAddr}}
}

func (s *stepRun) followerRuns() target { return s.runs(s.follower()) }

func (s *stepRun) leaderRuns() target {
	g := s.runs(s.c.WaitLeader())
	g.leader = g.old
	return g
}

// runs prepares the replacement of a node that runs on.
func (s *stepRun) runs(old *chaos.Node) target {
	before, _ := s.generation(old)
	var endpoints []string
	for _, n := range running(s.c, nil) {
		endpoints = append(endpoints, n.HTTPAddr)
	}
	next := s.c.Successor(old)
	return target{node: next, old: old, start: true, before: before,
		args: []string{"member", "replace", id(next), next.RaftAddr, "--endpoint", strings.Join(append(endpoints, next.HTTPAddr), ",")}}
}

// replaced prepares a node that runs, and whose replacement was never started.
func (s *stepRun) replaced() target {
	n := s.follower()
	before, _ := s.generation(n)
	operate(s.t, s.c, "member", "replace", id(n), "127.0.0.1:1", "--wait", "0s")
	return target{node: n, before: before, args: []string{"member", "remove", id(n), "--replacement"}}
}

// mover prepares a node whose next start is at another peer address.
func (s *stepRun) mover() target {
	n := s.follower()
	was := n.HTTPAddr
	s.c.Move(n)
	n.HTTPAddr = was
	return target{node: n, args: []string{"member", "update", id(n), n.RaftAddr}}
}

func (s *stepRun) successor() target {
	n := s.follower()
	return target{node: n, args: []string{"leader", "transfer", id(n)}}
}

func (s *stepRun) resign() target { return target{args: []string{"leader", "resign"}} }

func (s *stepRun) drained(n *chaos.Node) target {
	return target{node: n, args: []string{"drain", "--endpoint", n.HTTPAddr}}
}

// removeLearner wants the node to be a learner, and removes it.
func (s *stepRun) removeLearner(g *target) {
	s.t.Helper()
	g.node.WaitReady(chaos.ReadyTimeout)
	members, _ := memberList(s.t, s.c)
	found := 0
	for _, m := range members {
		if m.NodeID == g.node.ID && m.Role == "learner" && !m.Promote {
			found++
		}
	}
	if found != 1 {
		s.t.Errorf("node %d is to be one learner: %+v", g.node.ID, members)
	}
	operate(s.t, s.c, "member", "remove", id(g.node))
	wantRemoved(s.t, g.node)
}

// removeVoter wants the node to become a voter, and removes it.
func (s *stepRun) removeVoter(g *target) {
	s.t.Helper()
	settled(s.t, s.c, s.l)
	operate(s.t, s.c, "member", "remove", id(g.node))
	wantRemoved(s.t, g.node)
}

// gone wants the node that was removed to end.
func (s *stepRun) gone(g *target) {
	s.t.Helper()
	wantRemoved(s.t, g.node)
}

// nextGeneration wants the node to have been replaced once.
func (s *stepRun) nextGeneration(g *target) { s.wantGeneration(g, g.before+1) }

// oldEnded also wants the process that was replaced to end.
func (s *stepRun) oldEnded(g *target) {
	s.t.Helper()
	wantRemoved(s.t, g.old)
	s.wantGeneration(g, g.before+1)
}

// sameGeneration wants the node not to have been replaced.
func (s *stepRun) sameGeneration(g *target) { s.wantGeneration(g, g.before) }

func (s *stepRun) wantGeneration(g *target, want uint64) {
	s.t.Helper()
	if newest, count := s.generation(g.node); newest != want || count != 1 {
		s.t.Errorf("node %d has %d members, the newest of generation %d, want one of generation %d", g.node.ID, count, newest, want)
	}
}

// moved starts the node at its new address, unless it is there already, as it was killed. Until
// then a node that was restarted cannot reach it, although it may lead: so there is nothing to
// wait for.
func (s *stepRun) moved(g *target) {
	s.t.Helper()
	members, _ := memberList(s.t, s.c)
	for _, m := range members {
		if m.NodeID == g.node.ID && m.PeerAddr != g.node.RaftAddr {
			s.t.Errorf("node %d is on record at %s, want %s", m.NodeID, m.PeerAddr, g.node.RaftAddr)
		}
	}
	if !g.killed {
		g.node.Shutdown()
		g.node.Start()
	}
}

// leads wants the leadership to have been transferred. If the node was killed when it led
// already, that is done again.
func (s *stepRun) leads(g *target) {
	s.t.Helper()
	if g.killed {
		s.c.Settle()
		operate(s.t, s.c, g.args...)
	}
	if n := s.c.WaitLeader(); n != g.node {
		s.t.Errorf("node %d leads, want node %d", n.ID, g.node.ID)
	}
}

// drainedEnds waits for the end of the node, and starts it again. If it was killed, and started
// before it was told, it is told again.
func (s *stepRun) drainedEnds(g *target) {
	s.t.Helper()
	g.node.ExpectExit()
	if g.killed {
		g.node.WaitReady(chaos.ReadyTimeout)
		operate(s.t, s.c, g.args...)
	}
	if code := g.node.WaitExit(chaos.ExitTimeout); code != 0 {
		s.t.Errorf("node %d exited with code %d", g.node.ID, code)
	}
	g.node.Start()
}

// voterWatch asks all nodes all the time how many voters there are.
type voterWatch struct {
	stop  chan struct{}
	work  sync.WaitGroup
	conns map[string]*chaos.Conn // of run

	mu    sync.Mutex
	addrs []string
	asked int
	fault string
}

func watchVoters(t *testing.T) *voterWatch {
	w := &voterWatch{stop: make(chan struct{}), conns: map[string]*chaos.Conn{}}
	w.work.Go(w.run)
	t.Cleanup(w.halt)
	return w
}

// watch has the nodes of a cluster that run be asked.
func (w *voterWatch) watch(c *chaos.Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addrs = nil
	for _, n := range running(c, nil) {
		w.addrs = append(w.addrs, n.HTTPAddr)
	}
}

func (w *voterWatch) run() {
	defer func() {
		for _, c := range w.conns {
			_ = c.Close()
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		w.mu.Lock()
		addrs := w.addrs
		w.mu.Unlock()
		if len(addrs) > 0 {
			w.ask(addrs[i%len(addrs)])
		}
	}
}

func (w *voterWatch) ask(addr string) {
	m := w.members(addr)
	if m == nil || len(m.Members) == 0 {
		return // it is down, stopped, or has not joined
	}
	voters := 0
	for _, v := range m.Views() {
		if !v.Learner {
			voters++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if voters < nodesOfSteps && w.fault == "" {
		w.fault = fmt.Sprintf("the node at %s knows %d voters, want never less than %d: %+v", addr, voters, nodesOfSteps, m.Views())
	}
}

// members asks a node on the connection that it has, or on a new one. It returns nil if there is no answer.
func (w *voterWatch) members(addr string) *chaos.Membership {
	const timeout = 200 * time.Millisecond
	if conn := w.conns[addr]; conn != nil {
		if m, err := conn.Members(timeout); err == nil {
			return m
		}
		_ = conn.Close()
		delete(w.conns, addr)
	}
	conn, err := chaos.Dial(addr, timeout)
	if err != nil {
		return nil
	}
	m, err := conn.Members(timeout)
	if err != nil {
		_ = conn.Close()
		return nil
	}
	w.conns[addr] = conn
	return m
}

// halt may be called more than once, by one goroutine.
func (w *voterWatch) halt() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.work.Wait()
}

func (w *voterWatch) end(t *testing.T) {
	t.Helper()
	w.halt()
	if w.fault != "" || w.asked == 0 {
		t.Errorf("asked for the voters %d times: %s", w.asked, w.fault)
	}
}
