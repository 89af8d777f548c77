package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Version is the version of the wire format that this package speaks. The dialer begins
// with it, and again with version 1 if it is refused for that; the acceptor answers in the
// dialer's. What is in a hello of version 2 beyond its fixed part comes in sections, of
// which the reader skips those that it does not know; so there is no need for a version 3.
const Version uint16 = 2

// versionFixed is the version without sections, and without [FrameUpdate].
const versionFixed uint16 = 1

// The sections of a hello of version 2: a byte that says which, two bytes of length, and
// then the value.
const (
	sectionLevel    = 1 // 8 bytes
	sectionStage    = 2 // 1 byte
	sectionFounders = 3 // text: digits and commas
	sectionPeerAddr = 4 // text, like the client address

	sectionHeadSize = 3
)

const (
	// magic begins every hello and welcome, and tells a peer from a port scanner
	// or an HTTP client.
	magic = "isotone\x00"
	// clientAddrSizeMax is the longest client address in bytes: a DNS name has at
	// most 253 characters, and few come near.
	clientAddrSizeMax = 256
	// foundersSizeMax is enough for a hundred nodes with the longest IDs.
	foundersSizeMax = 2 << 10

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

	// What follows is not told by nodes that speak version 1.

	// Level is the newest feature level that the node knows; 1 if it does not say.
	Level uint64
	// Stage is how far it is in the life of its cluster; 0 if it does not say.
	Stage uint8
	// Founders are the IDs in PEERS of a node that has no cluster yet, as in "1,2,3".
	Founders string
	// PeerAddr is where it wants to be reached by other members.
	PeerAddr string
}

// VersionError says that the other side speaks another version.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer protocol version %d, this node speaks version %d", e.Theirs, e.Ours)
}

// AppendHello appends h to b as a frame of type FrameHello, FrameWelcome or FrameUpdate, in
// a version up to [Version]. Its only error matches [ErrClientAddr]; b is returned unchanged
// then.
func AppendHello(b []byte, t FrameType, h Hello, version uint16) ([]byte, error) {
	if err := checkAddrs(h); err != nil {
		return b, err
	}
	start := len(b)
	b = openFrame(b, t)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, version)
	for _, v := range [helloFields]uint64{
		h.ClusterID, h.NodeID, h.Incarnation, h.Boot, h.Session, h.VotersHash, h.Term, h.LastIndex, h.TickNanos,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.ClientAddr)))
	b = append(b, h.ClientAddr...)
	if version != versionFixed {
		b = appendSection(b, sectionLevel, binary.BigEndian.AppendUint64(nil, h.Level))
		b = appendSection(b, sectionStage, []byte{h.Stage})
		b = appendSection(b, sectionFounders, []byte(h.Founders))
		b = appendSection(b, sectionPeerAddr, []byte(h.PeerAddr))
	}
	return sealFrame(b, start), nil
}

func appendSection(b []byte, section byte, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, section), uint16(len(value)))
	return append(b, value...)
}

// ParseHello reads the payload of a hello, welcome or update frame, and says in which
// version it was written. Its errors are a *[VersionError], or match [ErrProtocol] or
// [ErrClientAddr].
func ParseHello(p []byte) (h Hello, version uint16, err error) {
	if len(p) < len(magic)+2 || string(p[:len(magic)]) != magic {
		return Hello{}, 0, fmt.Errorf("%w: not an isotone peer", ErrProtocol)
	}
	if version = binary.BigEndian.Uint16(p[len(magic):]); version < versionFixed || version > Version {
		return Hello{}, 0, &VersionError{Theirs: version, Ours: Version}
	}
	if len(p) < helloSizeFixed {
		return Hello{}, 0, fmt.Errorf("%w: hello of %d bytes", ErrProtocol, len(p))
	}
	for i, field := range [helloFields]*uint64{
		&h.ClusterID, &h.NodeID, &h.Incarnation, &h.Boot, &h.Session, &h.VotersHash, &h.Term, &h.LastIndex, &h.TickNanos,
	} {
		*field = binary.BigEndian.Uint64(p[len(magic)+2+8*i:])
	}
	size, rest := int(binary.BigEndian.Uint16(p[helloSizeFixed-2:])), p[helloSizeFixed:]
	if size > len(rest) || version == versionFixed && size != len(rest) {
		return Hello{}, 0, fmt.Errorf("%w: client address of %d bytes, want %d", ErrProtocol, len(rest), size)
	}
	h.ClientAddr, h.Level = string(rest[:size]), 1
	if version != versionFixed {
		if err := h.parseSections(rest[size:]); err != nil {
			return Hello{}, 0, err
		}
	}
	return h, version, checkAddrs(h)
}

// parseSections reads what follows the fixed part. Sections that this version does not
// know are skipped, and so is what a later version adds to one that it does.
func (h *Hello) parseSections(p []byte) error {
	for len(p) > 0 {
		if len(p) < sectionHeadSize {
			return fmt.Errorf("%w: hello with %d bytes after its last section", ErrProtocol, len(p))
		}
		section, size := p[0], int(binary.BigEndian.Uint16(p[1:]))
		if size > len(p)-sectionHeadSize {
			return fmt.Errorf("%w: hello with section %d of %d bytes, want %d", ErrProtocol, section, len(p)-sectionHeadSize, size)
		}
		value := p[sectionHeadSize : sectionHeadSize+size]
		p = p[sectionHeadSize+size:]
		switch {
		case section == sectionLevel && size >= 8:
			h.Level = binary.BigEndian.Uint64(value)
		case section == sectionStage && size >= 1:
			h.Stage = value[0]
		case section == sectionFounders:
			h.Founders = string(value)
		case section == sectionPeerAddr:
			h.PeerAddr = string(value)
		}
	}
	return nil
}

// checkAddrs checks all that is text.
func checkAddrs(h Hello) error {
	if len(h.Founders) > foundersSizeMax || strings.Trim(h.Founders, "0123456789,") != "" {
		return fmt.Errorf("%w: a list of initial members that is none", ErrClientAddr)
	}
	return errors.Join(checkClientAddr(h.ClientAddr), checkClientAddr(h.PeerAddr))
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
