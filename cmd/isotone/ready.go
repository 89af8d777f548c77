package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
)

// readyCmd asks one node whether it is ready. Images without a shell and curl use it as their
// health check.
type readyCmd struct {
	Endpoint endpointList  `name:"endpoint" placeholder:"HOST:PORT" help:"Client address of the one node that is asked, a URL, or unix:PATH, the socket operator.sock in its data directory. Default: where isotone serve listens with this HTTP_HOST and HTTP_PORT, on this machine."`
	HTTPHost string        `name:"http-host" env:"HTTP_HOST" placeholder:"HOST" help:"As of isotone serve."`
	HTTPPort string        `name:"http-port" env:"HTTP_PORT" default:"8080" help:"As of isotone serve."`
	Timeout  time.Duration `name:"timeout" default:"2s" help:"Maximum wait for the answer."`

	accessFlags
}

// readyPath is the path that says whether a node issues timestamps, or names who does, and makes
// IDs; see docs/health.md.
const readyPath = "/readyz"

// readyAnswer is the body of the answer of a node, or a proxy, that is ready.
const readyAnswer = "ok"

// readyBodyMax bounds what is read of an answer, in bytes.
const readyBodyMax = 64 << 10

// Run prints what the node says. It returns an error, and so exits with code 1, if the node is not
// ready or does not answer.
func (c *readyCmd) Run(ctx context.Context, con console) error {
	if c.Timeout <= 0 {
		return usagef("--timeout %v: want more than 0", c.Timeout)
	}
	if err := c.Endpoint.atMostOne("the node whose readiness is the exit code; for a whole cluster, see: isotone status"); err != nil {
		return err
	}
	endpoint := net.JoinHostPort(c.HTTPHost, c.HTTPPort)
	switch {
	case len(c.Endpoint) > 0:
		endpoint = c.Endpoint[0]
	case address.Unspecified(endpoint):
		endpoint = net.JoinHostPort("127.0.0.1", c.HTTPPort) // without a file that says what localhost is
	}
	reach, err := c.open()
	if err != nil {
		return err
	}
	bases, err := reach.URLs("--endpoint", []string{endpoint})
	if err != nil {
		return err
	}
	ctx, cancel := operator.NewLimit(c.Timeout).Context(ctx)
	defer cancel()
	answer, err := askReady(ctx, reach.HTTPClient(operator.Transport()), bases[0])
	if err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	return printText(con.out, answer+"\n")
}

// askReady returns the answer of a node that is ready.
func askReady(ctx context.Context, client *http.Client, base string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+readyPath, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if about := (*url.Error)(nil); errors.As(err, &about) {
		err = about.Err // the caller says which node it is
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if refused := survey.ReadRefusal(resp); refused != nil {
		return "", refused
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, readyBodyMax))
	if err != nil {
		return "", err
	}
	answer := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusOK:
		if answer != readyAnswer {
			return "", fmt.Errorf("the answer is not %q: is this a node?", readyAnswer)
		}
		return answer, nil
	case http.StatusServiceUnavailable:
		return "", errors.New(strings.ReplaceAll(answer, "\n", "; "))
	}
	return "", fmt.Errorf("HTTP status %s; is this a node?", resp.Status)
}
