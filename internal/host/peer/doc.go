// Package peer connects the nodes of one cluster: it opens the connections between them, and keeps
// them open.
//
// The bytes on them are those of internal/core/wire. It must not know what a message means to raft,
// what is on disk, or why a node is admitted: the node describes its data directory in [Config.Hello]
// and decides in [Config.Admit]. Only internal/node calls it.
//
// [Transport] dials, accepts and does handshakes on goroutines of its own. It attaches each admitted
// connection to an event loop, which reads and writes it through a [Stream].
//
// Every pair of nodes shares one duplex TCP connection. The node with the higher
// ID dials, so two nodes never open two connections to each other at once. When a
// peer completes a handshake while its older connection is still open, the new
// connection replaces the old one, which must be half open.
package peer
