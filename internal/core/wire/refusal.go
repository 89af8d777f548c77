package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// RefusalCode is the reason of a refusal. Codes are sent as text, so a node can report
// one that it does not know.
type RefusalCode string

// The reasons. [Handshake] and internal/host/peer use the first seven, the replica the others.
const (
	// RefusedVersion: the other side speaks another version of the protocol.
	RefusedVersion RefusalCode = "version"
	// RefusedWrongNode: another node than expected answers at this address, two
	// nodes have the same ID, or the wrong side dialed.
	RefusedWrongNode RefusalCode = "wrong_node"
	// RefusedNotMember: SetPeers does not name the node. This ends when the membership
	// change that adds the node is applied here.
	RefusedNotMember RefusalCode = "not_member"
	// RefusedHello: the hello has an invalid field.
	RefusedHello RefusalCode = "bad_hello"
	// RefusedClear: the connection is not protected, and this node takes such connections from
	// nobody, or only from its own machine.
	RefusedClear RefusalCode = "tls_required"

	// RefusedCertificate: the certificate of the node is not trusted, not valid any more,
	// revoked, or that of another node.
	RefusedCertificate RefusalCode = "certificate"

	// RefusedWrongCluster: the node belongs to another cluster, or was set up with
	// other initial members.
	RefusedWrongCluster RefusalCode = "wrong_cluster"
	// RefusedSettings: a setting that all nodes must share differs.
	RefusedSettings RefusalCode = "settings"
	// RefusedWiped: the node has another data directory than before (I6).
	RefusedWiped RefusalCode = "wiped"
	// RefusedStale: the node runs on an older copy of its data (I6).
	RefusedStale RefusalCode = "stale"
	// RefusedCloned: two processes run on copies of the same data (I6).
	RefusedCloned RefusalCode = "cloned"
	// RefusedFormed: the node was started to form a cluster, but one exists (I10).
	RefusedFormed RefusalCode = "already_formed"
	// RefusedFounders: the node was started to form a cluster with other members (I10).
	RefusedFounders RefusalCode = "other_peers"
	// RefusedLevel: the node's version is too old for the cluster (I12).
	RefusedLevel RefusalCode = "version_too_old"
)

const (
	// refusalCodeSizeMax is enough for a few words.
	refusalCodeSizeMax = 32
	// refusalMessageSizeMax is enough for a sentence with two addresses.
	refusalMessageSizeMax = 1024
)

// Refusal is the decision not to admit a node. Refusals with equal codes match under
// [errors.Is].
type Refusal struct {
	// Code has 1 to 32 bytes: lower-case letters, digits and underscores.
	Code RefusalCode
	// Message is for the operator of the refused node. It is cut to 1024 bytes on the
	// wire.
	Message string
}

// Refusalf returns a refusal with a formatted message.
func Refusalf(code RefusalCode, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns "code: message".
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// Is reports whether target is a *Refusal with the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// Side is one end of a connection, seen from this node.
type Side uint8

// The two ends.
const (
	Self Side = iota + 1
	Remote
)

// String returns "self" or "remote".
func (s Side) String() string {
	if s == Self {
		return "self"
	}
	return "remote"
}

// RefusedError reports that a handshake ended in a refusal.
type RefusedError struct {
	// Peer is the ID that was dialed or that an incoming hello claims; 0 if the hello
	// was unreadable.
	Peer    uint64
	By      Side // the side that refused
	Refusal *Refusal
}

func (e *RefusedError) Error() string {
	if e.By == Self {
		return fmt.Sprintf("refused node %d: %v", e.Peer, e.Refusal)
	}
	return fmt.Sprintf("refused by node %d: %v", e.Peer, e.Refusal)
}

// Unwrap returns the refusal.
func (e *RefusedError) Unwrap() error { return e.Refusal }

// AppendRefusal appends r to b as a frame. It panics if r.Code violates the rules in
// [Refusal].
func AppendRefusal(b []byte, r *Refusal) []byte {
	if !validCode(string(r.Code)) {
		panic(fmt.Sprintf("wire: refusal code %q", r.Code))
	}
	message := clip(strings.ToValidUTF8(r.Message, "?"), refusalMessageSizeMax)
	start := len(b)
	b = openFrame(b, FrameRefusal)
	b = append(b, byte(len(r.Code)))
	b = append(b, r.Code...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	b = append(b, message...)
	return sealFrame(b, start)
}

// ParseRefusal parses the payload of a refusal frame. Its errors match [ErrProtocol].
func ParseRefusal(p []byte) (*Refusal, error) {
	bad := fmt.Errorf("%w: refusal of %d bytes", ErrProtocol, len(p))
	if len(p) < 1 || len(p) < 1+int(p[0])+2 {
		return nil, bad
	}
	code, rest := string(p[1:1+int(p[0])]), p[1+int(p[0]):]
	size, message := int(binary.BigEndian.Uint16(rest)), string(rest[2:])
	if !validCode(code) || size != len(message) || size > refusalMessageSizeMax || !utf8.ValidString(message) {
		return nil, bad
	}
	return &Refusal{Code: RefusalCode(code), Message: message}, nil
}

func validCode(code string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789_"
	return code != "" && len(code) <= refusalCodeSizeMax && strings.Trim(code, allowed) == ""
}

// clip cuts s to at most size bytes, between characters.
func clip(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}
