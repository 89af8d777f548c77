//go:build linux

package service_test

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/check/chaos"
)

func init() { chaos.HostileQUIC = dialQUIC }

// quicConn is a connection of QUIC for hostile clients. It has no bytes to read and write.
type quicConn struct {
	net.Conn // nil
	socket   *net.UDPConn
	quic     *quic.Conn
}

// dialQUIC does the handshake of a connection that has an address of its own.
func dialQUIC(ctx context.Context, from net.IP, to string) (chaos.HostileQUICConn, error) {
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

func (c *quicConn) Ended() error { return c.quic.Context().Err() }

func (c *quicConn) Close() error {
	_ = c.quic.CloseWithError(0, "")
	return c.socket.Close()
}
