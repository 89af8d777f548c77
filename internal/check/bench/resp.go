package bench

import (
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// newRESP returns the protocol of Redis, version 2, with TLS if tlsConfig is not nil, and with
// pipelined commands. The few requests that are not part of the load use HTTP, on the same port
// of a node.
func newRESP(o *Options, tlsConfig *tls.Config) *pipelined {
	p := newPipelined(o, tlsConfig)
	p.begin = p.auth.authenticate
	command := respCommand(o)
	p.request = func(string) string { return command }
	p.parse = reading{count: o.Count}.parseRESP
	p.usual = reply.TimestampSize
	if o.readings {
		command, p.parse, p.usual = readingCommand(), reading{clock: true, nonce: readingNonce}.parseReadingRESP, readingReplySize
	}
	return p
}

// respCommand returns TS [count [QUORUM|LEASE]] [TIMELINE name].
func respCommand(o *Options) string {
	args := []string{"TS"}
	if o.Count != 1 || o.Mode != isotone.ReadDefault {
		args = append(args, strconv.FormatUint(o.Count, 10))
	}
	if o.Mode != isotone.ReadDefault {
		args = append(args, strings.ToUpper(o.Mode.String()))
	}
	if o.Timeline != "" {
		args = append(args, "TIMELINE", o.Timeline)
	}
	command := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return command
}

// parseRESP is the [parser] of answers to respCommand. Nodes answer with a timestamp or an
// error, and with no other type of RESP.
func (r reading) parseRESP(b []byte, a *answer) (int, error) {
	if len(b) > 0 && b[0] == '-' {
		return parseRefusal(b, a)
	}
	first, complete, err := reply.ParseTimestamp(b)
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q", errMalformed, b)
	}
	if !complete {
		return 0, nil
	}
	*a = answer{issued: isotone.Range{First: first, Count: r.count}}
	return reply.TimestampSize, nil
}

// parseRefusal parses an error reply.
func parseRefusal(b []byte, a *answer) (int, error) {
	line, rest, ok := cutLine(b)
	if !ok {
		return 0, tooLong(b)
	}
	e := reply.Error(line[1:])
	refusal, err := e.Decode()
	if _, known := e.Code(); !known || err != nil {
		return 0, fmt.Errorf("%w: %.100q", errMalformed, line)
	}
	*a = answer{code: string(refusal.Code), text: refusal.Message, leader: refusal.Leader}
	return len(b) - len(rest), nil
}
