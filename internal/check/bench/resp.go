package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
)

const (
	// stampHead and stampTail are around the 16 bytes of a timestamp.
	stampHead, stampTail = "$16\r\n", "\r\n"
	// stampSize is the length of an answer that is a timestamp.
	stampSize = len(stampHead) + isotone.TimestampSize + len(stampTail)
)

// newRESP returns the protocol of Redis, version 2, with commands pipelined. The few
// requests beside the load go over HTTP, which is on the same port of a node.
func newRESP(o *Options) *pipelined {
	p := newPipelined(o, nil)
	command := respCommand(o)
	p.request = func(string) string { return command }
	p.parse = reading{count: o.Count}.parseRESP
	p.usual = stampSize
	return p
}

// respCommand returns TS [count [QUORUM|LEASE]].
func respCommand(o *Options) string {
	args := []string{"TS"}
	if o.Count != 1 || o.Mode != isotone.ReadDefault {
		args = append(args, strconv.FormatUint(o.Count, 10))
	}
	if o.Mode != isotone.ReadDefault {
		args = append(args, strings.ToUpper(o.Mode.String()))
	}
	command := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return command
}

// parseRESP is the [parser] of answers to respCommand. A node gives a timestamp or an
// error, and nothing else that there is in RESP.
func (r reading) parseRESP(b []byte, a *answer) (int, error) {
	switch {
	case len(b) >= stampSize && string(b[:len(stampHead)]) == stampHead && string(b[stampSize-len(stampTail):stampSize]) == stampTail:
		at := len(stampHead)
		*a = answer{issued: isotone.Range{
			First: isotone.Timestamp{Time: binary.BigEndian.Uint64(b[at:]), Index: binary.BigEndian.Uint64(b[at+8:])},
			Count: r.count,
		}}
		return stampSize, nil
	case len(b) < stampSize && string(b[:min(len(b), len(stampHead))]) == stampHead[:min(len(b), len(stampHead))]:
		return 0, nil
	case b[0] == '-':
		return parseFault(b, a)
	}
	return 0, fmt.Errorf("%w: %.40q", errMalformed, b)
}

// parseFault reads an error, "-WORD text".
func parseFault(b []byte, a *answer) (int, error) {
	line, rest, ok := cutLine(b)
	if !ok {
		return 0, tooLong(b)
	}
	word, text, _ := bytes.Cut(line[1:], []byte{' '})
	*a = answer{text: string(text)}
	switch string(word) {
	case "MOVED": // 0 host:port
		_, addr, _ := strings.Cut(a.text, " ")
		if a.leader, ok = joinAddr(addr); !ok {
			return 0, fmt.Errorf("%w: %.100q", errMalformed, line)
		}
		a.code = string(isotone.CodeNotLeader)
	case "CLUSTERDOWN":
		a.code = string(isotone.CodeNoLeader)
	case "TRYAGAIN": // also for other reasons to wait, which cannot be told apart
		a.code = string(isotone.CodeOverloaded)
	case "NOAUTH":
		a.code = string(isotone.CodeUnauthorized)
	case "WRONGCLUSTER":
		a.code = string(isotone.CodeWrongCluster)
	case "ERR":
		a.code = string(isotone.CodeInvalidArgument)
		if strings.HasPrefix(a.text, "internal: ") {
			a.code = string(isotone.CodeInternal)
		}
	default:
		return 0, fmt.Errorf("%w: %.100q", errMalformed, line)
	}
	return len(b) - len(rest), nil
}

// joinAddr returns host:port with brackets around an IPv6 address, which RESP leaves out.
func joinAddr(text string) (addr string, ok bool) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", false
	}
	addr = net.JoinHostPort(strings.Trim(text[:colon], "[]"), text[colon+1:])
	return addr, checkAddr(addr) == nil
}
