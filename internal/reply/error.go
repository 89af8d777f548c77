package reply

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// Error is an error reply without its '-': "WORD text".
type Error string

// Error returns the whole reply.
func (e Error) Error() string { return string(e) }

// codes has the code of each word that Isotone or Redis begins an error with.
var codes = map[string]isotone.Code{
	"MOVED":        isotone.CodeNotLeader,
	"ASK":          isotone.CodeNotLeader, // of a timeline in another group than that of its slot
	"CLUSTERDOWN":  isotone.CodeNoLeader,
	"TRYAGAIN":     isotone.CodeOverloaded,
	"LOADING":      isotone.CodeOverloaded,
	"BUSY":         isotone.CodeOverloaded,
	"MASTERDOWN":   isotone.CodeOverloaded,
	"NOAUTH":       isotone.CodeUnauthorized,
	"WRONGPASS":    isotone.CodeUnauthorized,
	"NOPERM":       isotone.CodeForbidden,
	"QUOTA":        isotone.CodeQuotaExceeded,
	"NOWORKER":     isotone.CodeNoWorker,
	"WRONGCLUSTER": isotone.CodeWrongCluster,
	"REGRESSED":    isotone.CodeRegressed,
	"LOCKED":       isotone.CodeLocked,
	"EXPIRED":      isotone.CodeSessionExpired,
	"NOTBOUND":     isotone.CodeNotBound,
	"WRONGTYPE":    isotone.CodeInvalidArgument,
	"ERR":          isotone.CodeInvalidArgument,
}

// refined has the codes that follow a word more exactly, as "code: text": ERR when the fault is
// the node's, or when nothing has a name, and TRYAGAIN when more is to be said than that.
var refined = map[string][]isotone.Code{
	"ERR":      {isotone.CodeInternal, isotone.CodeNotFound},
	"TRYAGAIN": {isotone.CodeNoWorker, isotone.CodeNoQuorum, isotone.CodeQuotaExceeded},
}

// refine returns the code that text, which follows word, begins with, and the rest.
func refine(word, text string) (code isotone.Code, rest string, ok bool) {
	for _, code := range refined[word] {
		if rest, ok := strings.CutPrefix(text, string(code)+": "); ok {
			return code, rest, true
		}
	}
	return "", text, false
}

// Code returns the code of the error. It is isotone.CodeInternal, and known is false, if
// the word has no other.
func (e Error) Code() (code isotone.Code, known bool) {
	word, text, _ := strings.Cut(string(e), " ")
	if code, _, ok := refine(word, text); ok {
		return code, true
	}
	if code, known = codes[word]; !known {
		code = isotone.CodeInternal
	}
	return code, known
}

// Decode returns the error as package isotone spells it: the message without the word, for
// MOVED and ASK the address of the node to ask, and for a quota the pause that the server asks for. MOVED and ASK without a valid address match
// [ErrMalformed].
func (e Error) Decode() (*isotone.Error, error) {
	code, known := e.Code()
	if !known {
		return &isotone.Error{Code: code, Message: string(e)}, nil
	}
	word, text, _ := strings.Cut(string(e), " ")
	if code == isotone.CodeNotLeader { // slot host:port
		_, addr, _ := strings.Cut(text, " ")
		colon := strings.LastIndexByte(addr, ':')
		if colon < 0 {
			return nil, Malformed("%.100q", string(e))
		}
		leader := JoinAddr(addr[:colon], addr[colon+1:])
		if !ValidAddr(leader) {
			return nil, Malformed("%.100q", string(e))
		}
		return &isotone.Error{Code: code, Message: "the leader is " + leader, Leader: leader}, nil
	}
	_, text, _ = refine(word, text)
	decoded := &isotone.Error{Code: code, Message: text}
	if code == isotone.CodeQuotaExceeded {
		decoded.RetryAfter = retryAfter(text)
	}
	return decoded, nil
}

// retryAfterMax bounds what a server may ask for.
const retryAfterMax = time.Hour

// retryAfter returns the pause that text ends with, as in "retry after 20 ms"; 0 if there is none.
func retryAfter(text string) time.Duration {
	at := strings.LastIndex(text, "retry after ")
	if at < 0 {
		return 0
	}
	number, ok := strings.CutSuffix(text[at+len("retry after "):], " ms")
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Millisecond, retryAfterMax)
}

// JoinAddr returns host:port. Redis writes IPv6 addresses without brackets.
func JoinAddr(host, port string) string { return net.JoinHostPort(strings.Trim(host, "[]"), port) }

// ValidAddr reports whether addr is host:port with a port from 1 to 65535.
func ValidAddr(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || strings.ContainsAny(host, " \r\n\t/") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n != 0
}
