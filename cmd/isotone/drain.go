package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
)

// drainCmd stops one node as SIGTERM does; see docs/health.md.
type drainCmd struct {
	Endpoint endpointList  `name:"endpoint" placeholder:"HOST:PORT" help:"Client address of the one node that is to stop, an https URL, or unix:PATH, the socket operator.sock in its data directory. Default: the socket in DATA_DIR, _raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum time for the whole command, except for your answer to a question. It does not wait for the end of the node."`
	JSON     bool          `name:"json" help:"Print the answer as JSON."`
	Yes      bool          `name:"yes" short:"y" help:"Do not ask for confirmation."`

	accessFlags
}

// Run shows what is to end, asks for confirmation, and has the node drain.
func (c *drainCmd) Run(ctx context.Context, con console) error {
	reach, err := c.open()
	if err != nil {
		return err
	}
	endpoint := cmp.Or(operator.FindSocket(ctx, reach), operator.DefaultAddr)
	if err := c.Endpoint.atMostOne("the node that drains"); err != nil {
		return err
	}
	if len(c.Endpoint) > 0 {
		endpoint = c.Endpoint[0]
	} else if err := reach.MayGuess(); err != nil {
		return fmt.Errorf("%w with --endpoint", err)
	}
	bases, err := reach.URLs("--endpoint", []string{endpoint})
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return usagef("--timeout %v: want more than 0", c.Timeout)
	}
	limit := operator.NewLimit(c.Timeout)
	client := reach.HTTPClient(operator.Transport())
	call := func(method, path string, out any) error {
		ctx, cancel := limit.Context(ctx)
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
	var state survey.State
	if err := call(http.MethodGet, "/state", &state); err != nil {
		return err
	}
	if !c.Yes {
		if err := limit.Without(func() error { return confirm(ctx, con, drainPlan(&state)) }); err != nil {
			return err
		}
	}
	var answer struct {
		Draining bool `json:"draining"`
	}
	if err := call(http.MethodPost, web.DrainPath, &answer); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(con.out).Encode(answer)
	}
	fmt.Fprintf(con.out, "node %d at %s is draining: it serves for SHUTDOWN_DELAY_MS, then it ends\n", state.Node.ID, endpoint)
	return nil
}

// drainPlan says what happens when the node that s is from drains.
func drainPlan(s *survey.State) string {
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
