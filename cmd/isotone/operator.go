package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/dashboard"
)

// operatorFlags are the flags of all commands that change a running cluster.
type operatorFlags struct {
	Endpoint []string      `name:"endpoint" default:"localhost:8080" sep:"," placeholder:"HOST:PORT,..." help:"Client addresses of nodes of the cluster; the leader is found through any of them."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum time for the command."`
	JSON     bool          `name:"json" help:"Print the answer as JSON."`
	Yes      bool          `name:"yes" short:"y" help:"Do not ask for confirmation."`
}

// operatorBodyMax bounds the body of an answer, in bytes.
const operatorBodyMax = 1 << 20

// hopsMax bounds how many nodes are asked for each endpoint: two in a row may name a leader
// that leads no more.
const hopsMax = 3

// do sends a request to the leader and decodes its answer into out.
func (f *operatorFlags) do(ctx context.Context, method, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	var failures []error
	for _, endpoint := range f.Endpoint {
		for hops := 0; endpoint != "" && hops < hopsMax; hops++ {
			base, err := dashboard.Address(endpoint)
			if err != nil {
				return usagef("--endpoint: %v", err)
			}
			next, err := ask(ctx, method, base+path, out)
			if err == nil {
				return nil
			}
			failures = append(failures, fmt.Errorf("%s: %w", endpoint, err))
			endpoint = next
		}
	}
	return errors.Join(failures...)
}

// ask sends a request to one node. If another node leads, leader is its address.
func ask(ctx context.Context, method, url string, out any) (leader string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, operatorBodyMax))
	if err != nil {
		return "", err
	}
	if answer.StatusCode == http.StatusOK {
		return "", json.Unmarshal(body, out)
	}
	var fault struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &fault) != nil || fault.Error.Message == "" {
		return "", fmt.Errorf("HTTP status %s; is this a node of this version?", answer.Status)
	}
	return answer.Header.Get("Isotone-Leader"), fmt.Errorf("%s: %s", fault.Error.Code, fault.Error.Message)
}

// confirm asks whether to go on, unless --yes was given. Without a terminal it returns an
// error.
func (f *operatorFlags) confirm(con console, question string) error {
	if f.Yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return usagef("%s Confirm with --yes.", question)
	}
	fmt.Fprintf(con.err, "%s Go on? [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
