package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/host/config"
	hostlisten "github.com/isotone/isotone/internal/host/listen"
)

// devPort is the default of "isotone dev --port".
const devPort = 8081

// likelyNodes returns where a node is looked for if none is named: first, which is at the default
// of HTTP_PORT, then the nodes of "isotone dev".
func likelyNodes(first string) []string {
	addrs := []string{first}
	for i := range devNodes {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(devPort+i)))
	}
	return addrs
}

// likelySockets returns where the Unix socket of a node of this machine may be: in the data directory that the environment
// names, in the default one, and in that of the packages and images.
func likelySockets() []string {
	var paths []string
	for _, dir := range []string{os.Getenv("DATA_DIR"), config.Default().DataDir, "/var/lib/isotone", "/var/lib/isotone/data"} {
		path := filepath.Join(dir, operatorSocket)
		// In a directory where others may write, somebody could have put a socket of his own there.
		if dir != "" && (filepath.IsAbs(path) || isOwn(path)) {
			paths = append(paths, path)
		}
	}
	return paths
}

// findOperator returns the endpoint of a node at which an operator of this machine needs no credentials, or else that of any
// node on it. Somebody who has credentials wants to use them.
func findOperator(ctx context.Context, reach *nodeAccess) (string, error) {
	if endpoint := findSocket(ctx, reach); endpoint != "" {
		return endpoint, nil
	}
	return findNode(ctx, reach, likelyNodes(statusDefault))
}

// findSocket returns the endpoint of the first likely socket at which a node answers, or "".
func findSocket(ctx context.Context, reach *nodeAccess) string {
	if !reach.isAnonymous() {
		return ""
	}
	for _, path := range likelySockets() {
		if answersAt(ctx, path) {
			return unixScheme + path
		}
	}
	return ""
}

// isAnonymous reports whether the user has named nothing by which nodes would know him.
func (a *nodeAccess) isAnonymous() bool { return a.credentials == nil && !a.secure }

// answersAt reports whether this user may connect to a Unix socket, and somebody listens there.
func answersAt(ctx context.Context, path string) bool {
	c, err := hostlisten.DialUnix(ctx, path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// findTimeout bounds the search for a node on this machine.
const findTimeout = time.Second

// findNode returns the first of addrs at which a node answers. Its error lists what was tried. It
// sends no credentials: other servers may listen there.
func findNode(ctx context.Context, reach *nodeAccess, addrs []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := make([]error, len(addrs))
	anonymous := &nodeAccess{tls: reach.tls, secure: reach.secure}
	client := anonymous.client(operatorTransport())
	var asked sync.WaitGroup
	for i, addr := range addrs {
		asked.Go(func() { found[i] = isNode(ctx, anonymous, client, addr) })
	}
	asked.Wait()
	var tried []string
	for i, addr := range addrs {
		if found[i] == nil {
			return addr, nil
		}
		if found[i] == errNotANode {
			addr += " (another server)"
		}
		tried = append(tried, addr)
	}
	return "", fmt.Errorf("no node answers at %s: name one", strings.Join(tried, ", "))
}

var errNotANode = errors.New("this is no node")

// isNode returns nil if a node answers at addr.
func isNode(ctx context.Context, reach *nodeAccess, client *http.Client, addr string) error {
	bases, err := reach.urls("address", []string{addr})
	if err != nil {
		return err
	}
	var m struct {
		NodeID uint64 `json:"nodeID"`
	}
	answer, _, err := ask(ctx, client, http.MethodGet, bases[0]+"/members", nil)
	var told *operatorError
	switch {
	case errors.As(err, &told) && (told.code == isotone.CodeUnauthorized || told.code == isotone.CodeForbidden):
		return nil
	case err != nil && errors.As(err, new(net.Error)):
		return err
	case err != nil || json.Unmarshal(answer, &m) != nil || m.NodeID == 0:
		return errNotANode
	}
	return nil
}
