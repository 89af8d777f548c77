package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/isotone/isotone/internal/dashboard"
	"github.com/isotone/isotone/internal/operator"
)

// drainCmd stops one node as SIGTERM does; see docs/health.md.
type drainCmd struct {
	Endpoint *string       `name:"endpoint" placeholder:"HOST:PORT" help:"Client address of the node that is to stop, or unix:PATH, the socket operator.sock in its data directory. Default: the socket in DATA_DIR, _raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum time for the command, which does not wait for the end of the node."`
	JSON     bool          `name:"json" help:"Print the answer as JSON."`
	Yes      bool          `name:"yes" short:"y" help:"Do not ask for confirmation."`

	accessFlags
}

// drainPath is the path of the command; see internal/front/web.
const drainPath = "/admin/drain"

// Run shows what is to end, asks for confirmation, and has the node drain.
func (c *drainCmd) Run(ctx context.Context, con console) error {
	reach, err := c.open()
	if err != nil {
		return err
	}
	endpoint := cmp.Or(operator.FindSocket(ctx, reach), operator.DefaultAddr)
	if c.Endpoint != nil { // not the default if a variable is empty
		endpoint = *c.Endpoint
	}
	bases, err := reach.URLs("--endpoint", []string{endpoint})
	if err != nil {
		return err
	}
	client := reach.HTTPClient(operator.Transport())
	call := func(method, path string, out any) error {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		answer, _, err := operator.Ask(ctx, client, method, bases[0]+path, nil)
		if err == nil {
			err = json.Unmarshal(answer, out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", endpoint, err)
		}
		return nil
	}
	var state dashboard.State
	if err := call(http.MethodGet, "/state", &state); err != nil {
		return err
	}
	if !c.Yes {
		if err := confirm(ctx, con, drainPlan(&state)); err != nil {
			return err
		}
	}
	var answer struct {
		Draining bool `json:"draining"`
	}
	if err := call(http.MethodPost, drainPath, &answer); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(con.out).Encode(answer)
	}
	fmt.Fprintf(con.out, "node %d at %s is draining: it serves for SHUTDOWN_DELAY_MS, then it ends\n", state.Node.ID, endpoint)
	return nil
}

// drainPlan says what happens when the node that s is from drains.
func drainPlan(s *dashboard.State) string {
	voters, left := 0, 0
	for _, m := range s.Members {
		if m.Learner {
			continue
		}
		voters++
		if m.Connected && !m.Self {
			left++
		}
	}
	plan := fmt.Sprintf("Node %d (%s) sends its clients away and ends.", s.Node.ID, s.Node.Role)
	switch {
	case len(s.Members) <= 1:
		return plan + " It is the only member: no timestamps and no IDs until it is started again."
	case left < voters/2+1:
		return plan + fmt.Sprintf(" It is connected to %d other voters of %d, which are no quorum: no timestamps until it is started again.", left, voters)
	case s.Node.Role == "leader":
		return plan + " Another node becomes the leader first."
	}
	return plan
}

// drain asks the member to end. It can be called more than once, by any goroutine.
func (m *member) drain() { m.askOnce.Do(func() { close(m.asked) }) }

// redirectTime bounds how long a node that has led still redirects its clients to the next
// leader before it closes their connections.
const redirectTime = 100 * time.Millisecond

// redirectPoll is how often it looks whether they have left.
const redirectPoll = 5 * time.Millisecond

// stop drains the member and ends it. At first it only says that it is not ready, and serves for
// the delay; then it transfers leadership, redirects, lets requests under way finish, and gives
// its worker ids back.
func (m *member) stop(log *slog.Logger) error {
	reached(m.steps, "drain received")
	m.node.Drain()
	reached(m.steps, "drain announced")
	m.pause(m.shutdownDelay)
	led := m.node.Status().Role == "leader"
	ctx, cancel := context.WithTimeout(context.Background(), m.transferTimeout)
	defer cancel()
	if err := m.node.TransferLeadership(ctx); err != nil {
		log.Warn("stopping without transferring leadership", "err", err)
	} else if led && m.node.Status().Role != "leader" {
		for end := time.Now().Add(m.redirectTime); m.node.Conns()+m.fronts.web.Connections() > 0 && time.Now().Before(end); {
			m.pause(redirectPoll)
		}
	}
	reached(m.steps, "drain transferred")
	return m.close()
}

// pause waits, unless the member fails.
func (m *member) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.node.Failed():
	case <-m.served:
	}
}
