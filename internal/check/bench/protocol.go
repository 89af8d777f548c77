package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
)

// protocol connects lanes with nodes. All methods are safe for concurrent use.
type protocol interface {
	// shape says how many lanes a load has, and how many requests each may have under
	// way at a time.
	shape() (lanes, depth int)
	// dial connects a lane with the node at addr.
	dial(ctx context.Context, lane int, addr string) (conn, error)
	// client makes the few requests that are not part of the load.
	client() http.RoundTripper
	// close ends everything that does not belong to a single conn.
	close()
}

// conn carries the requests of one lane to one node, and answers in the order of the
// requests. It is for one goroutine, but for abort.
type conn interface {
	// send sends n requests at once. The lane keeps to the depth of the protocol.
	send(n int) error
	// receive waits for the next answer and overwrites *a with it.
	receive(a *answer) error
	// buffered reports whether there is more to receive without a wait.
	buffered() bool
	// abort lets send and receive fail soon, from any goroutine.
	abort()
	// close ends the conn and frees what it has.
	close()
}

// answer is what a node said to one request.
type answer struct {
	// code is "" for a success, otherwise one of the codes below or an isotone.Code.
	code string
	// text is the node's explanation of a failure.
	text string
	// issued is what was handed out, if code is "".
	issued isotone.Range
	// leader is the address of the node to ask instead, or "".
	leader string
	// last says that the node takes no further request on this conn.
	last bool
	// along says that this answer came along with the one before, in one read.
	along bool
}

// Codes of failures that no node reports. Those that nodes report are isotone.Codes, or
// "status_" and a number for an HTTP status without one.
const (
	// codeConnection: there was no connection, or it was lost under way.
	codeConnection = "connection"
	// codeTimeout: no answer came within Options.Timeout.
	codeTimeout = "timeout"
	// codeMalformed: the answer is none that a node could have given.
	codeMalformed = "malformed"
	// codeDropped: an arrival found the backlog full and was never sent.
	codeDropped = "dropped"
	// codeUnanswered: an arrival that had no answer when the run was over.
	codeUnanswered = "unanswered"
)

// errMalformed is matched by errors about answers that make no sense.
var errMalformed = errors.New("malformed answer")

// knownCode reports whether code is one that a node may use.
func knownCode(code isotone.Code) bool {
	switch code {
	case isotone.CodeInvalidArgument, isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeOverloaded,
		isotone.CodeDeadlineExceeded, isotone.CodeUnauthorized, isotone.CodeNotFound, isotone.CodeClock, isotone.CodeWrongCluster,
		isotone.CodeInternal:
		return true
	}
	return false
}

// newProtocol returns the protocol that the options name. They must be valid.
func newProtocol(o *Options, secure bool) protocol {
	var tlsConfig *tls.Config
	if secure {
		// A test tool that is asked not to look at certificates does not.
		tlsConfig = &tls.Config{RootCAs: o.CA, InsecureSkipVerify: o.Insecure, MinVersion: tls.VersionTLS12}
	}
	switch o.Protocol {
	case "http1":
		return newHTTP1(o, tlsConfig)
	case "resp":
		return newRESP(o)
	}
	return newMultiplex(o, tlsConfig)
}

// requestPath returns path and query of the request that the load consists of.
func requestPath(o *Options) string {
	if o.Static != "" {
		return o.Static
	}
	path, separator := "/timestamp", "?"
	if o.Count != 1 {
		path += separator + "n=" + strconv.FormatUint(o.Count, 10) + "&format=range"
		separator = "&"
	}
	if o.Mode != isotone.ReadDefault {
		path += separator + "mode=" + o.Mode.String()
	}
	return path
}
