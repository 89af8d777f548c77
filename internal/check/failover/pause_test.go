//go:build linux

package failover_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// pausedConns is how many connections send requests to a frozen leader, half of them before
// its successor has answered anything and half after.
const pausedConns = 16

// pausedAsker is one connection to the leader, and the request on it.
type pausedAsker struct {
	conn *chaos.Conn
	op   lincheck.Operation
}

// TestPause_LeaderThatResumesAnswersNothingStale sends requests to a frozen leader. When it
// resumes, it finds them in its sockets while its state still says that it leads. It may
// refuse them, or answer with timestamps that are in order (I4).
func TestPause_LeaderThatResumesAnswersNothingStale(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	refused := 0
	for range trial.Short(4, 2) {
		refused += pauseOnce(t, c)
	}
	if refused == 0 {
		t.Error("no paused leader ever refused a request: nothing was tested")
	}
}

func pauseOnce(t *testing.T, c *chaos.Cluster) (refused int) {
	epoch := time.Now()
	now := func() int64 { return int64(time.Since(epoch)) }
	leader := c.WaitLeader()
	askers, history := connect(t, leader, now)

	leader.Stop()
	send(t, askers[:pausedConns/2], now)
	for n := leader; n == nil || n == leader; n = c.Leader() {
		time.Sleep(5 * time.Millisecond)
	}
	for range 100 {
		began := now()
		after := trial.FromLeader(t, c, 3)
		history = append(history, lincheck.Operation{Invocation: began, Completion: now(), Range: after, Answered: true})
	}
	send(t, askers[pausedConns/2:], now)
	leader.Cont()

	outcomes := map[string]int{}
	for i := range askers {
		outcome := askers[i].receive(t, now)
		outcomes[outcome]++
		history = append(history, askers[i].op)
	}
	t.Logf("node %d, resumed, answered: %v", leader.ID, outcomes)
	if err := lincheck.Check(history); err != nil {
		t.Error(err)
	}
	c.WaitReady()
	return outcomes["refused"]
}

// connect opens connections to the leader and proves that it answers on each.
func connect(t *testing.T, leader *chaos.Node, now func() int64) (askers []pausedAsker, history []lincheck.Operation) {
	t.Helper()
	for i := range pausedConns {
		conn, err := chaos.Dial(leader.HTTPAddr, trial.AnswerTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		op := lincheck.Operation{Client: uint64(i), Invocation: now()}
		a, err := conn.Get("/timestamp", trial.AnswerTimeout)
		if err != nil || a.Status != 200 {
			t.Fatalf("the leader before its pause: %v, %v", a, err)
		}
		if op.Range, err = a.Range(); err != nil {
			t.Fatal(err)
		}
		op.Completion, op.Answered = now(), true
		history = append(history, op)
		askers = append(askers, pausedAsker{conn: conn})
	}
	return askers, history
}

// send sends one request on each connection; every fourth uses lease mode (I5), whose clock
// runs on while the process is stopped.
func send(t *testing.T, askers []pausedAsker, now func() int64) {
	t.Helper()
	for i := range askers {
		target := "/timestamp"
		if i%4 == 3 {
			target += "?mode=lease"
		}
		askers[i].op = lincheck.Operation{Client: uint64(100 + i), Invocation: now()}
		if err := askers[i].conn.Send(target); err != nil {
			t.Fatal(err)
		}
	}
}

// receive reads the answer and describes it.
func (p *pausedAsker) receive(t *testing.T, now func() int64) string {
	t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(trial.AnswerTimeout))
	a, err := p.conn.Receive()
	p.op.Completion = now()
	switch {
	case err != nil:
		return "connection"
	case a.Status == 409 || a.Status == 503:
		return "refused"
	case a.Status != 200:
		t.Errorf("a resumed leader answered %d %s", a.Status, a.Body)
		return "fault"
	}
	if p.op.Range, err = a.Range(); err != nil {
		t.Error(err)
	}
	p.op.Answered = true
	return "answered"
}
