package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the version of the wire format that this package speaks. Both sides
// must speak the same.
const Version uint16 = 1

const (
	// magic begins every hello and welcome, and tells a peer from a port scanner
	// or an HTTP client.
	magic = "isotone\x00"
	// clientAddrSizeMax is the longest client address in bytes: a DNS name has at
	// most 253 characters, and few come near.
	clientAddrSizeMax = 256

	helloFields    = 9
	helloSizeFixed = len(magic) + 2 + helloFields*8 + 2
)

// ErrClientAddr: an advertised client address is too long, or holds a byte that
// would not be safe in a header or a log line.
var ErrClientAddr = errors.New("bad client address")

// Hello is what a node says about itself before anything else. All of it is
// compared by the node in [Config.Admit]; this package checks NodeID alone.
type Hello struct {
	// ClusterID names the cluster; 0 while the node does not know it yet.
	ClusterID uint64
	NodeID    uint64
	// Incarnation names the data directory: it is drawn once, when the directory
	// is created.
	Incarnation uint64
	// Boot counts the starts on this data directory.
	Boot uint64
	// Session is random, one for each process start.
	Session uint64
	// VotersHash is a hash of the initial voter ids, compared while one of the
	// two ClusterIDs is unknown.
	VotersHash uint64
	// Term and LastIndex are durable when the hello is made.
	Term      uint64
	LastIndex uint64
	// TickNanos is the length of a Raft tick, in nanoseconds.
	TickNanos uint64
	// ClientAddr is the client address (host:port) to tell others: up to 256
	// bytes of printable ASCII without spaces. Empty means unknown.
	ClientAddr string
}

// VersionError says that the other side speaks another version.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer protocol version %d, this node speaks version %d", e.Theirs, e.Ours)
}

// AppendHello appends h to b as a frame of type FrameHello or FrameWelcome. Its
// only error matches [ErrClientAddr]; b is returned unchanged then.
func AppendHello(b []byte, t FrameType, h Hello) ([]byte, error) {
	if err := checkClientAddr(h.ClientAddr); err != nil {
		return b, err
	}
	start := len(b)
	b = openFrame(b, t)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, Version)
	for _, v := range [helloFields]uint64{
		h.ClusterID, h.NodeID, h.Incarnation, h.Boot, h.Session, h.VotersHash, h.Term, h.LastIndex, h.TickNanos,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.ClientAddr)))
	b = append(b, h.ClientAddr...)
	return sealFrame(b, start), nil
}

// ParseHello reads the payload of a hello or welcome frame. Its errors are a
// *[VersionError], or match [ErrProtocol] or [ErrClientAddr].
func ParseHello(p []byte) (Hello, error) {
	if len(p) < len(magic)+2 || string(p[:len(magic)]) != magic {
		return Hello{}, fmt.Errorf("%w: not an isotone peer", ErrProtocol)
	}
	if v := binary.BigEndian.Uint16(p[len(magic):]); v != Version {
		return Hello{}, &VersionError{Theirs: v, Ours: Version}
	}
	if len(p) < helloSizeFixed {
		return Hello{}, fmt.Errorf("%w: hello of %d bytes", ErrProtocol, len(p))
	}
	var h Hello
	for i, field := range [helloFields]*uint64{
		&h.ClusterID, &h.NodeID, &h.Incarnation, &h.Boot, &h.Session, &h.VotersHash, &h.Term, &h.LastIndex, &h.TickNanos,
	} {
		*field = binary.BigEndian.Uint64(p[len(magic)+2+8*i:])
	}
	h.ClientAddr = string(p[helloSizeFixed:])
	if n := int(binary.BigEndian.Uint16(p[helloSizeFixed-2:])); n != len(h.ClientAddr) {
		return Hello{}, fmt.Errorf("%w: client address of %d bytes, want %d", ErrProtocol, len(h.ClientAddr), n)
	}
	return h, checkClientAddr(h.ClientAddr)
}

// checkClientAddr is strict because the address ends up in a Location header, in
// logs and on the dashboard.
func checkClientAddr(addr string) error {
	if len(addr) > clientAddrSizeMax {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrClientAddr, len(addr), clientAddrSizeMax)
	}
	for i := range len(addr) {
		if addr[i] <= ' ' || addr[i] > '~' {
			return fmt.Errorf("%w: %q", ErrClientAddr, addr)
		}
	}
	return nil
}
