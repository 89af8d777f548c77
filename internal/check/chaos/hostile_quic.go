//go:build linux

package chaos

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// hostileQUIC is the network of kinds with connections of QUIC.
const hostileQUIC = "quic"

// quicConn is a connection of QUIC as that of a [hostileConn]. It has no bytes to read and write.
type quicConn struct {
	net.Conn // nil
	socket   *net.UDPConn
	quic     *quic.Conn
}

// dialQUIC does the handshake of a connection that has an address of its own.
func dialQUIC(ctx context.Context, from net.IP, to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostileWait)
	defer cancel()
	remote, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: from})
	if err != nil {
		return nil, err
	}
	conn, err := quic.Dial(ctx, socket, remote, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, nil)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return &quicConn{socket: socket, quic: conn}, nil
}

func (c *quicConn) SetDeadline(time.Time) error { return nil }

func (c *quicConn) Close() error {
	_ = c.quic.CloseWithError(0, "")
	return c.socket.Close()
}

// holdQUIC keeps a connection open, and sends nothing.
func holdQUIC(c *hostileConn) error {
	conn := c.conn.(*quicConn).quic
	if err := conn.Context().Err(); err != nil {
		return err // the node has closed it
	}
	c.served.Add(1)
	return nil
}
