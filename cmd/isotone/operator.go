package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone"
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
const operatorBodyMax = 64 << 20

const (
	// hopsMax bounds how many nodes are asked for each endpoint: two in a row may name a leader
	// that leads no more.
	hopsMax = 3
	// operatorRetry is the time between two attempts while the cluster has no leader.
	operatorRetry = 200 * time.Millisecond
	// operatorBusy is for how long a request is repeated that the leader cannot take at the
	// moment: it may only just have been elected.
	operatorBusy = 3 * time.Second
)

// do sends a request with a JSON body, or none if in is nil, to the leader and decodes its
// answer into out. While there is no leader it tries again until --timeout.
func (f *operatorFlags) do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	answer, err := f.raw(ctx, method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// raw is do for bodies that are encoded already.
func (f *operatorFlags) raw(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	busyUntil := time.Now().Add(operatorBusy)
	for {
		answer, err := f.once(ctx, method, path, body)
		var told *operatorError
		again := errors.As(err, &told) && (told.code == isotone.CodeNoLeader || told.code == isotone.CodeOverloaded && time.Now().Before(busyUntil))
		if !again {
			return answer, err
		}
		timer := time.NewTimer(operatorRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

// once asks each endpoint and the leader that it names, until one answers. If none does, it
// returns what the nodes said, or else why they cannot be reached.
func (f *operatorFlags) once(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	var failures []error
	var told error
	for _, endpoint := range f.Endpoint {
		for hops := 0; endpoint != "" && hops < hopsMax; hops++ {
			base, err := dashboard.Address(endpoint)
			if err != nil {
				return nil, usagef("--endpoint: %v", err)
			}
			answer, next, err := ask(ctx, method, base+path, body)
			if err == nil {
				return answer, nil
			}
			if next == "" && errors.As(err, new(*operatorError)) {
				told = fmt.Errorf("%s: %w", endpoint, err)
			}
			failures = append(failures, fmt.Errorf("%s: %w", endpoint, err))
			endpoint = next
		}
		if told != nil {
			return nil, told
		}
	}
	return nil, errors.Join(failures...)
}

// operatorError is an error that a node has answered.
type operatorError struct {
	code    isotone.Code
	message string
}

func (e *operatorError) Error() string { return fmt.Sprintf("%s: %s", e.code, e.message) }

// ask sends a request to one node. If another node leads, leader is its address.
func ask(ctx context.Context, method, url string, body []byte) (answer []byte, leader string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, operatorBodyMax))
	if err != nil {
		return nil, "", err
	}
	if resp.StatusCode == http.StatusOK {
		return answer, "", nil
	}
	var fault struct {
		Error struct {
			Code    isotone.Code
			Message string
		}
	}
	if json.Unmarshal(answer, &fault) != nil || fault.Error.Message == "" {
		return nil, "", fmt.Errorf("HTTP status %s; is this a node of this version?", resp.Status)
	}
	return nil, resp.Header.Get("Isotone-Leader"), &operatorError{fault.Error.Code, fault.Error.Message}
}

// print writes value as a line of JSON with --json, else calls text.
func (f *operatorFlags) print(con console, value any, text func(w io.Writer)) error {
	if f.JSON {
		return json.NewEncoder(con.out).Encode(value)
	}
	text(con.out)
	return nil
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
