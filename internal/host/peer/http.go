package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

const (
	// httpBody says what is wrong, in the form of the errors of nodes.
	httpBody = `{"error":{"code":"invalid_argument","message":"this is a peer port (RAFT_ADDR); name the client port, HTTP_PORT"}}`
	// HTTPField is a field of the answer to a request of HTTP, by which commands recognise the port. Its value is "peer".
	HTTPField = "Isotone-Port"
	// httpRequestMax bounds what is read of the request, in bytes.
	httpRequestMax = 64 << 10
)

var httpAnswer = "HTTP/1.1 421 Misdirected Request\r\n" + HTTPField + ": peer\r\nContent-Type: application/json\r\nContent-Length: " +
	strconv.Itoa(len(httpBody)) + "\r\nConnection: close\r\n\r\n" + httpBody

// errHTTP: somebody takes this for a port for clients.
var errHTTP = errors.New("this is no frame; it may be a request of HTTP, which belongs to HTTP_PORT")

// beginsHTTP reports whether a request of HTTP may begin with this byte. A frame in the handshake begins with 0.
func beginsHTTP(first byte) bool { return 'A' <= first && first <= 'Z' }

// misdirected tells a client of HTTP that it is wrong here. It ends with the deadline of the connection.
func misdirected(conn net.Conn) error {
	if _, err := io.WriteString(conn, httpAnswer); err != nil {
		return fmt.Errorf("%w: %w", errHTTP, err)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	// To close with bytes that were not read would reset the connection, and the answer could be lost.
	_, _ = io.CopyN(io.Discard, conn, httpRequestMax)
	return errHTTP
}
