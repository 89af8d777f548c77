package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/isotone/isotone/internal/operator"
)

// clusterFlags are the flags of all commands that send requests to the leader of a running cluster.
type clusterFlags struct {
	endpointFlags
	Timeout *time.Duration `name:"timeout" placeholder:"DURATION" help:"Maximum time for the whole command, except for your answer to a question. Default: 10s; for a command with --wait, 10s for each request."`
	JSON    bool           `name:"json" help:"Print the answer as JSON."`

	accessFlags
	waits  bool             // for something that may take long: only an explicit --timeout bounds the whole command
	limit  *operator.Limit  // nil: none
	client *operator.Client // nil before the first request
}

// endpointFlags name nodes of a cluster, in the same way for all commands that may be sent to any of them.
type endpointFlags struct {
	Endpoint endpointList `name:"endpoint" placeholder:"HOST:PORT,..." xor:"source" help:"Client addresses of nodes of the cluster, https URLs, or unix:PATH, the socket operator.sock in the data directory of a node; the leader and the other members are found through any of them. Default: the socket in DATA_DIR, _raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080; or a node of \"isotone dev\" at ports 8081 to 8083 of 127.0.0.1."`
}

// operatorFlags are the flags of all commands that change a running cluster.
type operatorFlags struct {
	clusterFlags
	Yes bool `name:"yes" short:"y" help:"Do not ask for confirmation."`
}

// timeoutDefault is the default of --timeout.
const timeoutDefault = 10 * time.Second

// connect checks the flags about nodes, once. If none is named it looks for one on this machine.
func (f *clusterFlags) connect(ctx context.Context) (*operator.Client, error) {
	if f.client != nil {
		return f.client, nil
	}
	timeout := timeoutDefault
	if f.Timeout != nil {
		timeout = *f.Timeout
	}
	if timeout <= 0 {
		return nil, usagef("--timeout %v: want more than 0", timeout)
	}
	if f.Timeout != nil || !f.waits {
		f.limit = operator.NewLimit(timeout)
	}
	a, err := f.open()
	if err != nil {
		return nil, err
	}
	named := f.Endpoint
	if len(named) == 0 {
		within, cancel := context.WithTimeout(ctx, timeout)
		addr, err := operator.Find(within, a)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%w with --endpoint", err)
		}
		named = endpointList{addr}
	}
	bases, err := a.URLs("--endpoint", named)
	if err != nil {
		return nil, err
	}
	f.client = operator.NewClient(a, bases, timeout, f.limit)
	return f.client, nil
}

// do sends a request to the leader; see [operator.Client.Do].
func (f *clusterFlags) do(ctx context.Context, method, path string, in, out any) error {
	c, err := f.connect(ctx)
	if err != nil {
		return err
	}
	return c.Do(ctx, method, path, in, out)
}

// print writes value as a line of JSON with --json, else calls text.
func (f *clusterFlags) print(con console, value any, text func(w io.Writer)) error {
	if f.JSON {
		return json.NewEncoder(con.out).Encode(value)
	}
	text(con.out)
	return nil
}

// confirm asks whether to go on, unless --yes was given; see [confirm].
func (f *operatorFlags) confirm(ctx context.Context, con console, question string) error {
	if f.Yes {
		return nil
	}
	return f.limit.Without(func() error { return confirm(ctx, con, question) })
}
