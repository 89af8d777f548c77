package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Version is the version of the wire format. A hello is extended by sections, and readers skip unknown
// ones, so another version should not be needed. 1 and 2 are those before the first release.
const Version uint16 = 3

// The sections of a hello. Each has its number in one byte, the length of the
// value in two, and the value.
const (
	sectionLevel    = 1 // 8 bytes
	sectionStage    = 2 // 1 byte
	sectionFounders = 3 // text: digits and commas
	sectionPeerAddr = 4 // text, like the client address
	sectionSeed     = 5 // 8 bytes, and text: hexadecimal digits; absent without a seed
	sectionPriority = 6 // 8 bytes
	// sectionConfigured is empty, and there if the address in sectionPeerAddr is from settings.
	sectionConfigured = 7
	sectionLayout     = 8 // text; absent without one

	sectionHeadSize = 3
)

const (
	// magic begins every hello and welcome; port scanners and HTTP clients do not send it.
	magic = "isotone\x00"
	// clientAddrSizeMax is the longest address in bytes; a DNS name has at most 253.
	clientAddrSizeMax = 256
	// foundersSizeMax is enough for a hundred of the longest IDs.
	foundersSizeMax = 2 << 10
	// layoutSizeMax is enough for four bytes and an int64 in decimal.
	layoutSizeMax = 40
	// seedDigestSize is the length of the digest of a backup.
	seedDigestSize = 64

	helloFields    = 9
	helloSizeFixed = len(magic) + 2 + helloFields*8 + 2
)

// ErrClientAddr: an address in a hello is too long, or has a byte that is not safe in a
// header or a log line; or the list of initial members or the digest of a backup, or the layout of IDs, is malformed.
var ErrClientAddr = errors.New("bad client address")

// Hello describes a node at the start of a connection. The replica decides by it whom it
// admits; this package checks only NodeID and Session.
type Hello struct {
	// ClusterID identifies the cluster; 0 while unknown.
	ClusterID uint64
	NodeID    uint64
	// Incarnation identifies the data directory; it is random, drawn on creation.
	Incarnation uint64
	// Boot counts the starts on this data directory.
	Boot uint64
	// Session identifies the process; it is random.
	Session uint64
	// VotersHash is a hash of the initial voter IDs, compared while one of the two
	// ClusterIDs is unknown.
	VotersHash uint64
	// Term and LastIndex are durable.
	Term      uint64
	LastIndex uint64
	// TickNanos is the length of a Raft tick in nanoseconds.
	TickNanos uint64
	// ClientAddr is the advertised client address (host:port): up to 256 bytes of
	// printable ASCII without spaces. Empty means unknown.
	ClientAddr string
	// Level is the newest feature level that the node supports.
	Level uint64
	// Stage is the node's stage of formation.
	Stage uint8
	// Founders has the IDs in PEERS, as in "1,2,3", while the node has no cluster.
	Founders string
	// PeerAddr is the advertised peer address, with the limits of ClientAddr.
	PeerAddr string
	// Priority is that of the node as a leader.
	Priority int64
	// SeedDigest identifies the backup from which the node restores a cluster that is being
	// formed: 64 hexadecimal digits, or empty. SeedFloor is the floor that it demands, in unix
	// nanoseconds.
	SeedDigest string
	SeedFloor  uint64
	// Configured is set if PeerAddr is from the node's settings, its own entry in PEERS. Otherwise it is
	// where the node listens, or what the cluster has on record.
	Configured bool
	// Layout has the layout of IDs of a founder that gathers the others, as in "41/5/5/12@1288834974657"; empty without IDs.
	Layout string
}

// VersionError reports that the other side speaks an unknown version.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer protocol version %d, this node speaks version %d", e.Theirs, e.Ours)
}

// AppendHello appends h to b as a frame of type FrameHello, FrameWelcome or FrameUpdate. Its only error
// matches [ErrClientAddr], and leaves b unchanged.
func AppendHello(b []byte, t FrameType, h Hello) ([]byte, error) {
	if err := checkAddrs(h); err != nil {
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
	b = appendSection(b, sectionLevel, binary.BigEndian.AppendUint64(nil, h.Level))
	b = appendSection(b, sectionStage, []byte{h.Stage})
	b = appendSection(b, sectionFounders, []byte(h.Founders))
	b = appendSection(b, sectionPeerAddr, []byte(h.PeerAddr))
	if h.Priority != 0 {
		b = appendSection(b, sectionPriority, binary.BigEndian.AppendUint64(nil, uint64(h.Priority)))
	}
	if h.SeedDigest != "" {
		b = appendSection(b, sectionSeed, append(binary.BigEndian.AppendUint64(nil, h.SeedFloor), h.SeedDigest...))
	}
	if h.Configured {
		b = appendSection(b, sectionConfigured, nil)
	}
	if h.Layout != "" {
		b = appendSection(b, sectionLayout, []byte(h.Layout))
	}
	return sealFrame(b, start), nil
}

func appendSection(b []byte, section byte, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, section), uint16(len(value)))
	return append(b, value...)
}

// ParseHello parses the payload of a hello, welcome or update frame. Its errors are a *[VersionError],
// or match [ErrProtocol] or [ErrClientAddr].
func ParseHello(p []byte) (h Hello, err error) {
	if len(p) < len(magic)+2 || string(p[:len(magic)]) != magic {
		return Hello{}, fmt.Errorf("%w: not an isotone peer", ErrProtocol)
	}
	if version := binary.BigEndian.Uint16(p[len(magic):]); version != Version {
		return Hello{}, &VersionError{Theirs: version, Ours: Version}
	}
	if len(p) < helloSizeFixed {
		return Hello{}, fmt.Errorf("%w: hello of %d bytes", ErrProtocol, len(p))
	}
	for i, field := range [helloFields]*uint64{
		&h.ClusterID, &h.NodeID, &h.Incarnation, &h.Boot, &h.Session, &h.VotersHash, &h.Term, &h.LastIndex, &h.TickNanos,
	} {
		*field = binary.BigEndian.Uint64(p[len(magic)+2+8*i:])
	}
	size, rest := int(binary.BigEndian.Uint16(p[helloSizeFixed-2:])), p[helloSizeFixed:]
	if size > len(rest) {
		return Hello{}, fmt.Errorf("%w: client address of %d bytes, want %d", ErrProtocol, len(rest), size)
	}
	h.ClientAddr = string(rest[:size])
	if err := h.parseSections(rest[size:]); err != nil {
		return Hello{}, err
	}
	return h, checkAddrs(h)
}

// parseSections parses the bytes after the fixed part. It skips unknown sections, and bytes
// that a later version has added to a known one.
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
		case section == sectionPriority && size >= 8:
			h.Priority = int64(binary.BigEndian.Uint64(value))
		case section == sectionSeed && size >= 8:
			h.SeedFloor, h.SeedDigest = binary.BigEndian.Uint64(value), string(value[8:])
		case section == sectionConfigured:
			h.Configured = true
		case section == sectionLayout:
			h.Layout = string(value)
		}
	}
	return nil
}

// checkAddrs checks the text fields.
func checkAddrs(h Hello) error {
	if len(h.Founders) > foundersSizeMax || strings.Trim(h.Founders, "0123456789,") != "" {
		return fmt.Errorf("%w: malformed list of initial members", ErrClientAddr)
	}
	if h.SeedDigest != "" && (len(h.SeedDigest) != seedDigestSize || strings.Trim(h.SeedDigest, "0123456789abcdef") != "") {
		return fmt.Errorf("%w: malformed digest of a backup", ErrClientAddr)
	}
	if len(h.Layout) > layoutSizeMax || strings.Trim(h.Layout, "0123456789/@") != "" {
		return fmt.Errorf("%w: malformed layout of IDs", ErrClientAddr)
	}
	return errors.Join(checkClientAddr(h.ClientAddr), checkClientAddr(h.PeerAddr))
}

// checkClientAddr is strict because addresses end up in Location headers, in logs and on
// the dashboard.
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
