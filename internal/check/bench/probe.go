package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// TargetError means that no load was possible: no target is a reachable oracle, or no
// request was answered.
type TargetError string

func (e TargetError) Error() string { return string(e) }

func targetErrorf(format string, args ...any) error { return TargetError(fmt.Sprintf(format, args...)) }

// membersMax bounds the answer to GET /members.
const membersMax = 1 << 20

// membership is the part of GET /members that the probe uses.
type membership struct {
	Leader *struct {
		NodeID uint64
		Addr   string
	}
	Members []struct {
		NodeID uint64
		Addr   string
	}
	NodeID uint64 // of the node that answers
}

// probe asks the targets in order until one of them is an oracle, and returns the route to
// its leader.
func probe(ctx context.Context, o *Options, p protocol) (*route, error) {
	addrs, secure := o.targets()
	scheme := "http"
	if secure {
		scheme = "https"
	}
	if o.Static != "" {
		return newRoute(addrs), probeStatic(ctx, o, p, scheme+"://"+addrs[0]+o.Static)
	}
	var failures []string
	hint := "name a running node with --target"
	for _, addr := range addrs {
		m, err := askMembers(ctx, o, p, scheme+"://"+addr)
		if err != nil {
			failures = append(failures, err.Error())
			if errors.As(err, new(*tls.CertificateVerificationError)) {
				hint = "accept any certificate with --insecure, or name the CA's certificate with --ca FILE"
			}
			continue
		}
		r := newRoute(addrs)
		r.current = addr
		for _, member := range m.Members {
			if checkAddr(member.Addr) == nil {
				r.add(member.Addr)
			}
		}
		if m.Leader != nil && checkAddr(m.Leader.Addr) == nil {
			r.current = m.Leader.Addr
		}
		return r, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, targetErrorf("%s; %s", strings.Join(failures, "; "), hint)
}

func askMembers(ctx context.Context, o *Options, p protocol, base string) (*membership, error) {
	response, body, err := get(ctx, o, p, base+"/members")
	if err != nil {
		return nil, err
	}
	m := new(membership)
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%s: %s: name who asks with --user and --password-file, or --cert and --key; it needs the right to read", base, response.Status)
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, m) != nil ||
		len(m.Members) == 0 && m.NodeID == 0 { // a node that has just started may know no members yet
		return nil, fmt.Errorf("%s is not an oracle: GET /members gives status %d and no list of members", base, response.StatusCode)
	}
	return m, nil
}

func probeStatic(ctx context.Context, o *Options, p protocol, url string) error {
	response, _, err := get(ctx, o, p, url)
	if err != nil {
		return TargetError(err.Error())
	}
	if response.StatusCode != http.StatusOK {
		return targetErrorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// get makes one request that is not part of the load.
func get(ctx context.Context, o *Options, p protocol, url string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	auth := o.authorization(request.URL.Scheme == "https")
	if err := auth.check(request.URL.Host); err != nil {
		return nil, nil, err
	}
	if header := auth.header(); header != "" {
		request.Header.Set("Authorization", header)
	}
	body := make([]byte, membersMax)
	response, err := roundTrip(p.client(), request, body)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, fmt.Errorf("cannot reach %s: no answer within %v", url, o.Timeout)
	case err != nil:
		return nil, nil, unreachable{url, err}
	}
	return response, body[:response.ContentLength], nil
}

// unreachable is a request that got no answer.
type unreachable struct {
	url string
	err error
}

func (e unreachable) Error() string {
	return fmt.Sprintf("cannot reach %s: %s", e.url, oneLine(e.err.Error()))
}

func (e unreachable) Unwrap() error { return e.err }

// oneLine replaces line breaks in the error of a library by spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
