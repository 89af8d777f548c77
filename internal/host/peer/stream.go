package peer

import (
	"net"
	"time"

	"github.com/isotone/isotone/internal/core/wire"
)

const (
	// stallTimeout is about ten election timeouts. By then raft has given the peer up;
	// TCP alone would keep trying for a quarter of an hour.
	stallTimeout = 5 * time.Second
	// pingsPerStall is how many pings may be lost or late before a connection stalls.
	pingsPerStall = 4
)

// Attacher attaches an admitted connection to an event loop; see [Config.Attach].
type Attacher func(conn net.Conn, s *Stream) (stop func(error), err error)

// Stream is one connection, with its [Codec]. Once the connection is attached, an event
// loop moves the bytes; the stream has no goroutine then and does no I/O, and only the
// loop's goroutine may call its methods.
type Stream struct {
	wire.Codec
	conn    net.Conn
	secured Secured // conn, if it is protected; else nil
	ended   chan error
}

// StallTimeout returns how long the other side may send nothing, or read nothing, before
// the loop must close the connection.
func (s *Stream) StallTimeout() time.Duration { return stallTimeout }

// PingInterval returns how long this side may send nothing before an [wire.AppendPing] is due.
func (s *Stream) PingInterval() time.Duration { return stallTimeout / pingsPerStall }

// Ended tells the transport that the connection was closed, and why. The loop must call it
// exactly once, whichever side ended the connection.
func (s *Stream) Ended(err error) { s.ended <- err }
