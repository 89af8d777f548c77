package operator

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
	"github.com/isotone/isotone/internal/host/listen"
)

const (
	// DefaultAddr is asked first if no node is named.
	DefaultAddr = "localhost:8080"
	// DevPort is the default of "isotone dev --port".
	DevPort = 8081
	// DevNodes is the number of nodes of "isotone dev": the smallest cluster that survives
	// the loss of one.
	DevNodes = 3
)

// LikelyNodes returns where a node is looked for if none is named: first, which is at the default
// of HTTP_PORT, then the nodes of "isotone dev".
func LikelyNodes(first string) []string {
	addrs := []string{first}
	for i := range DevNodes {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(DevPort+i)))
	}
	return addrs
}

// likelySockets returns where the Unix socket of a node of this machine may be: in the data directory that the environment
// names, in the default one, and in that of the packages and images.
func likelySockets() []string {
	var paths []string
	for _, dir := range []string{os.Getenv("DATA_DIR"), config.Default().DataDir, "/var/lib/isotone", "/var/lib/isotone/data"} {
		path := filepath.Join(dir, SocketName)
		// In a directory where others may write, somebody could have put a socket of his own there.
		if dir != "" && (filepath.IsAbs(path) || isOwn(path)) {
			paths = append(paths, path)
		}
	}
	return paths
}

// errUnnamed: the command would have to guess where to send a secret.
var errUnnamed = errors.New("a secret is sent in plaintext only to a node that you name, because any program may listen at a likely port: name the node")

// MayGuess returns nil if a command may ask a node that the user has not named. It would send a secret to whichever program listens
// there, unless a certificate proves who that is.
func (a *Access) MayGuess() error {
	if a.Credentials != nil && (!a.Secure || a.TLS.InsecureSkipVerify) {
		return errUnnamed
	}
	return nil
}

// Find returns the endpoint of a node at which an operator of this machine needs no credentials, or else that of any
// node on it. Somebody who has credentials wants to use them; see [Access.MayGuess]. Its error lists what was tried.
func Find(ctx context.Context, reach *Access) (string, error) {
	if endpoint := FindSocket(ctx, reach); endpoint != "" {
		return endpoint, nil
	}
	return FindNode(ctx, reach, LikelyNodes(DefaultAddr))
}

// FindSocket returns the endpoint of the first likely socket at which a node answers, or "".
func FindSocket(ctx context.Context, reach *Access) string {
	if !reach.isAnonymous() {
		return ""
	}
	for _, path := range likelySockets() {
		if answersAt(ctx, path) {
			return UnixScheme + path
		}
	}
	return ""
}

// answersAt reports whether this user may connect to a Unix socket, and somebody listens there.
func answersAt(ctx context.Context, path string) bool {
	c, err := listen.DialUnix(ctx, path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// findTimeout bounds the search for a node on this machine.
const findTimeout = time.Second

// FindNode returns the first of addrs at which a node answers. Its error lists what was tried. It
// sends no credentials: other servers may listen there. So it refuses if they would be sent later.
func FindNode(ctx context.Context, reach *Access, addrs []string) (string, error) {
	if err := reach.MayGuess(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := make([]error, len(addrs))
	anonymous := &Access{TLS: reach.TLS, Secure: reach.Secure}
	client := anonymous.HTTPClient(Transport())
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
func isNode(ctx context.Context, reach *Access, client *http.Client, addr string) error {
	bases, err := reach.URLs("address", []string{addr})
	if err != nil {
		return err
	}
	var m struct {
		NodeID uint64 `json:"nodeID"`
	}
	answer, _, err := Ask(ctx, client, http.MethodGet, bases[0]+"/members", nil)
	var told *Error
	switch {
	case errors.As(err, &told) && (told.Code == isotone.CodeUnauthorized || told.Code == isotone.CodeForbidden):
		return nil
	case err != nil && errors.As(err, new(net.Error)):
		return err
	case err != nil || json.Unmarshal(answer, &m) != nil || m.NodeID == 0:
		return errNotANode
	}
	return nil
}
