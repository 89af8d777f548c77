package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// operatorFlags are the flags of all commands that change a running cluster.
type operatorFlags struct {
	Endpoint endpointList  `name:"endpoint" placeholder:"HOST:PORT" xor:"source" help:"Client addresses of nodes of the cluster, https URLs, or unix:PATH, the socket operator.sock in the data directory of a node; the leader is found through any of them. Default: the socket in DATA_DIR, _raft, /var/lib/isotone or /var/lib/isotone/data; or localhost:8080; or a node of \"isotone dev\" at ports 8081 to 8083 of 127.0.0.1."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum time for the command."`
	JSON     bool          `name:"json" help:"Print the answer as JSON."`
	Yes      bool          `name:"yes" short:"y" help:"Do not ask for confirmation."`

	accessFlags
	access *nodeAccess
	client *http.Client // of access; nil before the first request
	bases  []string     // the URLs of Endpoint
}

// connect checks the flags about nodes, once. If none is named it looks for one on this machine.
func (f *operatorFlags) connect(ctx context.Context) error {
	if f.client != nil {
		return nil
	}
	a, err := f.open()
	if err != nil {
		return err
	}
	named := f.Endpoint
	if len(named) == 0 {
		addr, err := findOperator(ctx, a)
		if err != nil {
			return fmt.Errorf("%w with --endpoint", err)
		}
		named = endpointList{addr}
	}
	if f.bases, err = a.urls("--endpoint", named); err != nil {
		return err
	}
	f.access, f.client = a, a.client(operatorTransport())
	return nil
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
	// operatorDialTimeout bounds a dial, and operatorGetTimeout a request that changes nothing,
	// which a node answers at once.
	operatorDialTimeout = 2 * time.Second
	operatorGetTimeout  = 3 * time.Second
)

// do sends a request with a JSON body, or none if in is nil, to the leader and decodes its
// answer into out. While there is no leader it tries again until --timeout. Its error is an
// *unsureError if an attempt may have had its effect.
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

// unsureError is the error of a request of which an attempt may have had its effect: its
// answer was lost, or the leadership changed before it was confirmed.
type unsureError struct{ cause error }

func (e *unsureError) Error() string {
	return fmt.Sprintf("%v; it may have had its effect all the same: look before you try again", e.cause)
}

func (e *unsureError) Unwrap() error { return e.cause }

// raw is do for bodies that are encoded already.
func (f *operatorFlags) raw(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	if err := f.connect(ctx); err != nil {
		return nil, err
	}
	busyUntil := time.Now().Add(operatorBusy)
	unsure := false
	for {
		answer, attempts, err := f.once(ctx, method, path, body)
		if err == nil {
			return answer, nil
		}
		unsure = unsure || method != http.MethodGet && slices.ContainsFunc(attempts, mayHaveHappened)
		if unsure {
			err = &unsureError{err}
		}
		if !worthRepeating(err, attempts, busyUntil) {
			return nil, err
		}
		timer := time.NewTimer(pauseAfter(err))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

// pauseAfter returns the pause before a request with this error is repeated.
func pauseAfter(err error) time.Duration {
	var told *operatorError
	if errors.As(err, &told) && told.code == isotone.CodeQuotaExceeded {
		return max(told.retryAfter, operatorRetry)
	}
	return operatorRetry
}

// mayHaveHappened reports whether a request with this error may have had its effect.
func mayHaveHappened(err error) bool {
	var told *operatorError
	if errors.As(err, &told) {
		return told.code == isotone.CodeNoLeader || told.code == isotone.CodeDeadlineExceeded || told.code == isotone.CodeInternal
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial"
}

// worthRepeating reports whether a request may succeed later: there is no leader, or the one
// that a node names is not the leader any more, or it is busy and that is not for long.
func worthRepeating(err error, attempts []error, busyUntil time.Time) bool {
	if errors.As(err, new(usageError)) {
		return false
	}
	var told *operatorError
	if errors.As(err, &told) && told.code == isotone.CodeOverloaded {
		return time.Now().Before(busyUntil)
	}
	if errors.As(err, &told) && told.code != isotone.CodeNoLeader && told.code != isotone.CodeNotLeader && told.code != isotone.CodeQuotaExceeded {
		return false
	}
	return slices.ContainsFunc(attempts, func(err error) bool { return errors.As(err, &told) }) // a node of the cluster runs
}

// once asks each endpoint and the leader that it names, until one answers. If none does, it
// returns what the nodes said, or else why they cannot be reached; and all that it was told.
// A node without a leader may be the only one: it may wait to join, or have been removed. The
// leader is asked by the scheme of the node that names it, so that a secret stays within TLS.
func (f *operatorFlags) once(ctx context.Context, method, path string, body []byte) (answer []byte, attempts []error, err error) {
	var noLeader error
	for _, base := range f.bases {
		for hops := 0; base != "" && hops < hopsMax; hops++ {
			scheme, addr, _ := strings.Cut(base, "://")
			answer, leader, err := ask(ctx, f.client, method, base+path, body)
			if err == nil {
				return answer, nil, nil
			}
			var told *operatorError
			if errors.As(err, &told) && told.code == isotone.CodeNotFound && strings.HasPrefix(told.message, "no such path") {
				told.message = fmt.Sprintf("it answers, but has no %s: it is not a node (perhaps a proxy), or one of an older version; name another node", path)
			}
			err = fmt.Errorf("%s: %w", f.access.shown(addr), err)
			attempts = append(attempts, err)
			switch {
			case leader != "" || !errors.As(err, &told):
			case told.code == isotone.CodeNoLeader:
				noLeader = err
			default:
				return nil, attempts, err
			}
			if base = ""; leader != "" {
				base = scheme + "://" + leader
			}
		}
	}
	if noLeader != nil {
		return nil, attempts, noLeader
	}
	return nil, attempts, errors.Join(attempts...)
}

// operatorError is an error that a node has answered.
type operatorError struct {
	code       isotone.Code
	message    string
	retryAfter time.Duration // 0: not told
}

func (e *operatorError) Error() string {
	text := fmt.Sprintf("%s: %s", e.code, e.message)
	if e.code == isotone.CodeUnauthorized {
		text += " (--user and --password-file, or --cert and --key, say who you are; on the machine of a node, the user that runs it needs none: --endpoint unix:DATA_DIR/" + operatorSocket + ")"
	}
	return text
}

// operatorTransport does not wait long for a machine that is gone, or for a process that is
// stopped: another endpoint may answer.
func operatorTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: operatorDialTimeout}).DialContext, TLSHandshakeTimeout: operatorDialTimeout, DisableKeepAlives: true,
	}
}

// ask sends a request to one node. If another node leads, leader is its address.
func ask(ctx context.Context, client *http.Client, method, target string, body []byte) (answer []byte, leader string, err error) {
	if method == http.MethodGet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, operatorGetTimeout)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	return exchange(client, r)
}

// exchange is ask for a request that has been made.
func exchange(client *http.Client, r *http.Request) (answer []byte, leader string, err error) {
	resp, err := client.Do(r)
	if about := (*url.Error)(nil); errors.As(err, &about) {
		err = about.Err // callers say which node it is
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		err = fmt.Errorf("%w (--ca FILE names the CA, or the self-signed certificate of the node)", err)
	}
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
	seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	return nil, resp.Header.Get("Isotone-Leader"), &operatorError{fault.Error.Code, fault.Error.Message, time.Duration(seconds) * time.Second}
}

// print writes value as a line of JSON with --json, else calls text.
func (f *operatorFlags) print(con console, value any, text func(w io.Writer)) error {
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
	return confirm(ctx, con, question)
}
