package operator

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
	"github.com/isotone/isotone/internal/inspect/survey"
)

// bodyMax bounds the body of an answer, in bytes.
const bodyMax = 64 << 20

const (
	// hopsMax bounds how many nodes are asked for each endpoint: two in a row may name a leader
	// that leads no more.
	hopsMax = 3
	// retryPause is the time between two attempts while the cluster has no leader.
	retryPause = 200 * time.Millisecond
	// busyMax is for how long a request is repeated that a node cannot take at the moment: it may only just have been
	// elected, and not be connected with all voters yet, or have no worker for IDs yet.
	busyMax = 3 * time.Second
	// dialTimeout bounds a dial, and getTimeout a request that changes nothing, which a node answers at once. Such a request
	// may take a third of the time that is left if that is more.
	dialTimeout = 2 * time.Second
	getTimeout  = 3 * time.Second
)

// UnsureError is the error of a request of which an attempt may have had its effect: its
// answer was lost, or the leadership changed before it was confirmed.
type UnsureError struct{ Cause error }

// Error says that the effect is unknown.
func (e *UnsureError) Error() string {
	return fmt.Sprintf("%v; it may have had its effect all the same: look before you try again", e.Cause)
}

// Unwrap returns the cause.
func (e *UnsureError) Unwrap() error { return e.Cause }

// Client sends requests to the leader of a cluster.
type Client struct {
	access  *Access
	bases   []string
	timeout time.Duration
	limit   *Limit
	http    *http.Client
}

// NewClient returns a client of the cluster of some nodes, whose URLs are from [Access.URLs]. A request takes at
// most timeout, with all its attempts, and everything together no longer than limit. Nothing is connected before the
// first request.
func NewClient(access *Access, bases []string, timeout time.Duration, limit *Limit) *Client {
	return &Client{access: access, bases: bases, timeout: timeout, limit: limit, http: access.HTTPClient(Transport())}
}

// Do sends a request with a JSON body, or none if in is nil, to the leader and decodes its
// answer into out. While there is no leader it tries again until the timeout. Its error
// is an *[UnsureError] if an attempt may have had its effect, and otherwise an *[Error] if a node has
// answered.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	answer, err := c.Checked(ctx, method, path, body, func(answer []byte) error {
		if !json.Valid(answer) {
			return errors.New("the answer is no JSON: is this a node?")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// Raw is Do for bodies that are encoded already.
func (c *Client) Raw(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return c.Checked(ctx, method, path, body, func([]byte) error { return nil })
}

// Checked is Raw that takes an answer only if check returns nil. Otherwise whoever has answered is no node, and the next
// endpoint is asked.
func (c *Client) Checked(ctx context.Context, method, path string, body []byte, check func(answer []byte) error) ([]byte, error) {
	ctx, cancel := c.limit.Context(ctx)
	defer cancel()
	ctx, stop := withTimeout(ctx, c.timeout)
	defer stop()
	busyUntil := time.Now().Add(busyMax)
	unsure := false
	for {
		answer, attempts, err := c.once(ctx, method, path, body, check)
		if err == nil {
			return answer, nil
		}
		unsure = unsure || method != http.MethodGet && slices.ContainsFunc(attempts, mayHaveHappened)
		if unsure {
			err = &UnsureError{err}
		}
		if !worthRepeating(err, attempts, busyUntil) {
			return nil, err
		}
		pause := pauseAfter(err)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
			return nil, err // it will not be served in time
		}
		timer := time.NewTimer(pause)
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
	var told *Error
	if errors.As(err, &told) && told.Code == isotone.CodeQuotaExceeded {
		return max(told.RetryAfter, retryPause)
	}
	return retryPause
}

// mayHaveHappened reports whether a request with this error may have had its effect.
func mayHaveHappened(err error) bool {
	var told *Error
	if errors.As(err, &told) {
		return told.Code == isotone.CodeNoLeader || told.Code == isotone.CodeDeadlineExceeded || told.Code == isotone.CodeInternal
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial"
}

// worthRepeating reports whether a request may succeed later: there is no leader, or the one
// that a node names is not the leader any more, or it is busy and that is not for long.
func worthRepeating(err error, attempts []error, busyUntil time.Time) bool {
	if errors.As(err, new(UsageError)) {
		return false
	}
	var told *Error
	if errors.As(err, &told) && (told.Code == isotone.CodeOverloaded || told.Code == isotone.CodeNoQuorum || told.Code == isotone.CodeNoWorker) {
		return time.Now().Before(busyUntil)
	}
	if errors.As(err, &told) && told.Code != isotone.CodeNoLeader && told.Code != isotone.CodeNotLeader && told.Code != isotone.CodeQuotaExceeded {
		return false
	}
	return slices.ContainsFunc(attempts, func(err error) bool { return errors.As(err, &told) }) // a node of the cluster runs
}

// share bounds a request that changes nothing to its share of what is left of a deadline, if further endpoints are to be asked:
// one that hangs must not take the time of those that answer.
func share(ctx context.Context, method string, endpoints int) (context.Context, context.CancelFunc) {
	until, bounded := ctx.Deadline()
	if !bounded || method != http.MethodGet || endpoints < 2 {
		return context.WithCancel(ctx)
	}
	left := time.Until(until) / time.Duration(endpoints)
	return context.WithTimeoutCause(ctx, left, timeoutError(fmt.Sprintf("no answer within %v, its share of the time", left.Round(time.Millisecond))))
}

// once asks each endpoint and the leader that it names, until one answers. If none does, it
// returns what the nodes said, or else why they cannot be reached; and all that it was told.
// A node without a leader may be the only one: it may wait to join, or have been removed. The
// leader is asked by the scheme of the node that names it, so that a secret stays within TLS.
func (c *Client) once(ctx context.Context, method, path string, body []byte, check func([]byte) error) (answer []byte, attempts []error, err error) {
	var noLeader error
	for i, base := range c.bases {
		if i > 0 && ctx.Err() != nil {
			break // nobody was asked
		}
		ctx, cancel := share(ctx, method, len(c.bases)-i)
		defer cancel()
		var sentOn error
		for hops := 0; base != "" && hops < hopsMax; hops++ {
			scheme, addr, _ := strings.Cut(base, "://")
			answer, leader, err := Ask(ctx, c.http, method, base+path, body)
			if err == nil {
				if err = check(answer); err == nil {
					return answer, nil, nil
				}
			}
			var told *Error
			if errors.As(err, &told) && told.Code == isotone.CodeNotFound && strings.HasPrefix(told.Message, "no such path") {
				told.Message = fmt.Sprintf("it answers, but has no %s: it is not a node (perhaps a proxy), or one of an older version; name another node", path)
			}
			err = fmt.Errorf("%s: %w", c.access.Shown(addr), err)
			attempts = append(attempts, err)
			switch {
			case leader != "" || !errors.As(err, &told):
			case told.Code == isotone.CodeNoLeader:
				noLeader = err
			case sentOn != nil && told.Code == isotone.CodeUnauthorized: // the node that named the leader may say what to do
				return nil, attempts, fmt.Errorf("%w; %w", err, sentOn)
			default:
				return nil, attempts, err
			}
			sentOn = err
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

// Error is an error that a node has answered.
type Error struct {
	Code       isotone.Code
	Message    string
	RetryAfter time.Duration // 0: not told
}

// Error returns the code and the message, and how to authenticate if that is missing.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Code, e.Message)
	switch {
	case e.Code == isotone.CodeUnauthorized:
		text += " (" + survey.HowToAuthenticate + ")"
	case e.Code == isotone.CodeForbidden && strings.Contains(e.Message, " role"): // not the proof of a node that joins
		text += " (" + survey.HowToPermit + ")"
	}
	return text
}

// Transport does not wait long for a machine that is gone, or for a process that is
// stopped: another endpoint may answer.
func Transport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout, DisableKeepAlives: true,
	}
}

// Ask sends a request to one node. If another node leads, leader is its address.
func Ask(ctx context.Context, client *http.Client, method, target string, body []byte) (answer []byte, leader string, err error) {
	if method == http.MethodGet {
		timeout := getTimeout
		if until, ok := ctx.Deadline(); ok {
			timeout = max(timeout, (time.Until(until) / 3).Round(time.Second))
		}
		var cancel context.CancelFunc
		ctx, cancel = withTimeout(ctx, timeout)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	return Exchange(client, r)
}

// withTimeout returns a context whose cause says for how long nothing answered.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, timeoutError(fmt.Sprintf("no answer within %v", timeout)))
}

// Exchange is Ask for a request that has been made.
func Exchange(client *http.Client, r *http.Request) (answer []byte, leader string, err error) {
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
	answer, err = io.ReadAll(io.LimitReader(resp.Body, bodyMax))
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
	return nil, resp.Header.Get("Isotone-Leader"), &Error{fault.Error.Code, fault.Error.Message, time.Duration(seconds) * time.Second}
}
