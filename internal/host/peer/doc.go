// Package peer carries raft messages between the nodes of one cluster: the wire
// format, the handshake that decides who may talk, and the connections.
//
// It owns the bytes between two nodes and the sockets they travel on. It must not
// know what a message means to raft, what is on disk, or why a node is admitted:
// the node decides that in [Config.Admit], and turns the data directory into a
// [Hello]. Only internal/node calls it.
//
// # Layers
//
// The codec and the handshake do no I/O, read no clock and start no goroutine:
// [Decoder] is fed bytes and yields frames, the Append functions append frames to
// a buffer, [Handshake] is stepped frame by frame. [Transport] dials, accepts and
// does handshakes on goroutines of its own, and attaches each admitted connection
// to an event loop, which moves its bytes through a [Stream].
//
// # Connections
//
// Every pair of nodes shares one duplex TCP connection. The node with the higher
// id dials, so two nodes never open two connections to each other at once. A
// connection that arrives while an older one of the same peer is still open
// replaces it as soon as its handshake is complete: the old one is half dead.
//
// # Wire format
//
//	frame     = length type payload checksum
//	length    = 4 bytes, big-endian: the bytes after it, 5 to FrameSizeMax
//	type      = 1 byte
//	checksum  = 4 bytes, big-endian: CRC32C of type and payload
//
// All integers are big-endian. A connection begins
//
//	dialer                     acceptor
//	hello          ──────►     admits the dialer, or answers refusal
//	               ◄──────     welcome
//	ready, or      ──────►     connected from here on
//	refusal
//
// and carries messages and pings both ways after that. The first ten bytes of
// hello and welcome (magic, version), the frame layout and the refusal are the
// same in every version; all else may change with it.
package peer
