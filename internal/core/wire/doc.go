// Package wire is the wire format between the nodes of one cluster: frames, hellos, refusals, raft
// messages, readings of clocks, and the handshake with the admission of peers.
//
// It defines the bytes, and does no I/O, reads no clock and starts no goroutine: [Decoder] takes
// bytes and returns frames, the Append functions append frames to a buffer, [Handshake] takes one
// frame at a time, [Codec] is what follows it. It must not know what a message means to raft, or why a
// node is admitted. internal/host/peer moves the bytes over connections, internal/core/sim through a
// simulated network; internal/node appends what is not a raft message.
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
// Messages, pings, clock readings and updates follow in both directions. A message that
// is larger than a frame follows in parts, which the receiver joins. The first
// ten bytes of hello and welcome (magic, version), the frame layout and the refusal
// are the same in every version; everything else may change.
package wire
