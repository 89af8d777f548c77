package resp

import (
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// faultTextMax bounds the text of an error answer, since many commands may get the same one
// at once. The longest host name and a port fit.
const faultTextMax = 280

// faultOf converts err to the vocabulary. A CodeNotLeader always has an address.
func faultOf(err error) *isotone.Error {
	e := front.ErrorOf(err)
	if e.Code == isotone.CodeNotLeader && e.Leader == "" {
		// A redirect without a target would make the client loop.
		return isotone.Errorf(isotone.CodeNoLeader, "%s", e.Message)
	}
	return e
}

// prefixOf returns the first word of an error answer. Cluster clients follow MOVED, and
// they and some others retry after CLUSTERDOWN and TRYAGAIN. A request that got no answer in
// time can be retried, too: timestamps that nobody has seen order nothing.
func prefixOf(code isotone.Code) string {
	switch code {
	case isotone.CodeNotLeader:
		return "MOVED"
	case isotone.CodeNoLeader:
		return "CLUSTERDOWN"
	case isotone.CodeOverloaded, isotone.CodeClock, isotone.CodeDeadlineExceeded:
		return "TRYAGAIN"
	case isotone.CodeNoWorker, isotone.CodeNoQuorum, isotone.CodeQuotaExceeded:
		return "TRYAGAIN" // with the code; see appendFault
	case isotone.CodeUnauthorized:
		return "NOAUTH"
	case isotone.CodeForbidden:
		return "NOPERM"
	case isotone.CodeWrongCluster:
		return "WRONGCLUSTER"
	case isotone.CodeRegressed:
		return "REGRESSED"
	case isotone.CodeLocked:
		return "LOCKED"
	case isotone.CodeSessionExpired:
		return "EXPIRED"
	case isotone.CodeNotBound:
		return "NOTBOUND"
	default:
		return "ERR"
	}
}

// appendFault appends e, which came from faultOf, as an error answer.
func appendFault(b []byte, e *isotone.Error) []byte {
	r := reply{b: b}
	switch e.Code {
	case isotone.CodeNotLeader:
		return appendRedirect(b, "MOVED", 0, e.Leader)
	case isotone.CodeInternal:
		r.fault("ERR", "internal: "+e.Message)
	case isotone.CodeNoWorker, isotone.CodeNoQuorum, isotone.CodeQuotaExceeded:
		// Clients that do not know these codes do what is right after TRYAGAIN.
		r.fault("TRYAGAIN", string(e.Code)+": "+e.Message)
	default:
		r.fault(prefixOf(e.Code), e.Message)
	}
	return r.b
}

// appendRedirect appends the answer to a command for which another node is asked, with the slot of its key. Where the leader has all slots, any
// will do for a command without keys.
func appendRedirect(b []byte, word string, slot uint16, to string) []byte {
	if n, ok := parseNode(0, to); ok {
		to = n.addr() // clients expect an IPv6 address without brackets
	}
	r := reply{b: b}
	r.fault(word, strconv.Itoa(int(slot))+" "+to)
	return r.b
}

// redirectSlot returns the slot that a redirect of a command names whose key is none: 0, which clients take for the leader's, as all slots
// are. Where slots have several owners, clients look for the slot of what is presented as its key.
func (f *Front) redirectSlot(cmd *command, args [][]byte) uint16 {
	if !f.cfg.SlotsOfTimelines || cmd.key == 0 || cmd.key >= len(args) {
		return 0
	}
	return slotOf(args[cmd.key])
}

// fault appends an error: its first word, which programs go by, and a text, limited to one
// line.
func (r *reply) fault(word, text string) {
	r.b = append(r.b, '-')
	r.b = append(r.b, word...)
	r.b = append(r.b, ' ')
	r.b = appendLine(r.b, text, faultTextMax)
	r.b = append(r.b, '\r', '\n')
}

// appendLine appends at most n bytes of text, with spaces in place of control characters.
func appendLine(b []byte, text string, n int) []byte {
	for i := 0; i < min(len(text), n); i++ {
		if c := text[i]; c < ' ' || c == 0x7f {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return b
}
