// Package peer connects the nodes of one cluster: the wire format of raft messages,
// the handshake with the admission of peers, and the connections.
//
// It opens the connections between nodes and defines the bytes on them. It must not
// know what a message means to raft, what is on disk, or why a node is admitted:
// the node describes its data directory in [Config.Hello] and decides in
// [Config.Admit]. Only internal/node calls it; examples/intervals reads hellos with it.
//
// # Layers
//
// The codec and the handshake do no I/O, read no clock and start no goroutine:
// [Decoder] takes bytes and returns frames, the Append functions append frames to
// a buffer, [Handshake] takes one frame at a time. [Transport] dials, accepts and
// does handshakes on goroutines of its own. It attaches each admitted connection to
// an event loop, which reads and writes it through a [Stream].
//
// # Connections
//
// Every pair of nodes shares one duplex TCP connection. The node with the higher
// ID dials, so two nodes never open two connections to each other at once. When a
// peer completes a handshake while its older connection is still open, the new
// connection replaces the old one, which must be half open.
//
// # Wire format
//
//	frame     = length type payload checksum
//	length    = 4 bytes, big-endian: the bytes after it, 5 to FrameSizeMax
//	type      = 1 byte
//	checksum  = 4 bytes, big-endian: CRC32C of type and payload
//
// All integers are big-endian. A connection begins with a handshake:
//
//	dialer                     acceptor
//	hello          ──────►     admits the dialer, or answers refusal
//	               ◄──────     welcome
//	ready, or      ──────►     connected from here on
//	refusal
//
// Messages, pings, clock readings and updates follow in both directions. The first
// ten bytes of hello and welcome (magic, version), the frame layout and the refusal
// are the same in every version; everything else may change.
package peer
