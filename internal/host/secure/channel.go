package secure

import (
	"crypto/tls"
	"net"

	"github.com/isotone/isotone/internal/host/loop"
)

// Channel is TLS on a connection that begins outside of a loop, on either side, and enters one
// later. Until then it is a [net.Conn] with the methods of its [tls.Conn], and a blocking one.
// It is safe for the same concurrent use.
type Channel struct {
	*tls.Conn
	socket socket
}

// Client returns the dialing side of TLS on nc, which has yet to do its handshake.
func Client(nc net.Conn, cfg *tls.Config) *Channel {
	c := newChannel(nc, nil)
	c.Conn = tls.Client(&c.socket, cfg)
	return c
}

// Server returns the accepting side of TLS on nc, of which read was read already. It has yet to
// do its handshake.
func Server(nc net.Conn, read []byte, cfg *tls.Config) *Channel {
	c := newChannel(nc, read)
	c.Conn = tls.Server(&c.socket, cfg)
	return c
}

func newChannel(nc net.Conn, read []byte) *Channel {
	return &Channel{socket: socket{stage: stageOutside, net: nc, in: read}}
}

// NetConn returns the connection that carries the records.
func (c *Channel) NetConn() net.Conn { return c.socket.net }

// Heard reports whether the other side has sent anything. It may be called when no other method
// is under way.
func (c *Channel) Heard() bool { return c.socket.heard }

// Enter moves TLS into the loop that conn was attached to, with [Channel.NetConn] and nothing
// unread. The channel must not be used any more; the handler of conn reads what follows.
func (c *Channel) Enter(conn *loop.Conn) {
	c.socket.enterLoop(conn.Send)
	conn.SetLayer(&session{tls: c.Conn, socket: &c.socket}, nil)
}
