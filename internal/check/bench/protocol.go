package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/isotone/isotone"
	clock "github.com/isotone/isotone/internal/core/interval"
)

// protocol connects callers with nodes. All methods are safe for concurrent use.
type protocol interface {
	// shape returns the number of callers, and how many requests each may have under way.
	shape() (callers, depth int)
	// dial connects a caller with the node at addr.
	dial(ctx context.Context, id int, addr string) (conn, error)
	// client makes the few requests that are not part of the load.
	client() http.RoundTripper
	// close ends everything that does not belong to a single conn.
	close()
}

// conn carries the requests of one caller to one node, and returns answers in the order of
// the requests. Except for abort, it belongs to one goroutine.
type conn interface {
	// send sends n requests at once. With them, no more than the protocol's depth may be
	// under way.
	send(n int) error
	// receive waits for the next answer and overwrites *a with it.
	receive(a *answer) error
	// buffered reports whether part of an answer has been read already.
	buffered() bool
	// abort makes send and receive fail soon. It may be called from any goroutine.
	abort()
	// close ends the conn and frees its resources.
	close()
}

// answer is a node's answer to one request.
type answer struct {
	// code is "" for a success, otherwise one of the codes below or an isotone.Code.
	code string
	// text is the node's explanation of a failure.
	text string
	// issued are the timestamps, if code is "".
	issued isotone.Range
	// told is the reading of the cluster clock that was asked for instead.
	told clock.Reading
	// leader is the address of the node to ask instead, or "".
	leader string
	// last: the node accepts no further request on this conn.
	last bool
	// along: the answer came in one read with the previous one.
	along bool
}

// Codes of failures that the load generator detects. Those that nodes report are an
// isotone.Code, or "status_" and the number of an HTTP status without one.
const (
	// codeConnection: there was no connection, or it broke.
	codeConnection = "connection"
	// codeTimeout: no answer came within Options.Timeout.
	codeTimeout = "timeout"
	// codeMalformed: the answer is invalid.
	codeMalformed = "malformed"
	// codeDropped: an arrival found the backlog full and was never sent.
	codeDropped = "dropped"
	// codeUnanswered: an arrival had no answer when the run ended.
	codeUnanswered = "unanswered"
)

// errMalformed matches errors about malformed answers.
var errMalformed = errors.New("malformed answer")

// knownCode reports whether code is one that a node may use.
func knownCode(code isotone.Code) bool {
	switch code {
	case isotone.CodeInvalidArgument, isotone.CodeNotLeader, isotone.CodeNoLeader, isotone.CodeOverloaded,
		isotone.CodeDeadlineExceeded, isotone.CodeUnauthorized, isotone.CodeNotFound, isotone.CodeClock, isotone.CodeWrongCluster,
		isotone.CodeRegressed, isotone.CodeForbidden, isotone.CodeQuotaExceeded, isotone.CodeNoWorker, isotone.CodeNoQuorum, isotone.CodeInternal:
		return true
	}
	return false
}

// newProtocol returns the protocol that the options name. They must be valid.
func newProtocol(o *Options, secure bool) protocol {
	var tlsConfig *tls.Config
	if secure {
		if tlsConfig = o.TLS.Clone(); tlsConfig == nil {
			tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	switch o.Protocol {
	case "http1":
		return newHTTP1(o, tlsConfig)
	case "resp":
		return newRESP(o, tlsConfig)
	case "h2c", "h2":
		return newHTTP2(o, tlsConfig)
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
		separator = "&"
	}
	if o.Timeline != "" {
		path += separator + "timeline=" + url.QueryEscape(o.Timeline)
	}
	return path
}
