// Package thriftrpc is the Thrift front of the id service: the interface in
// snowflake.thrift, in the protocols binary, compact, json and simplejson, buffered and
// framed, in the clear and under TLS, all on one port.
//
// It owns the port's connections, the detection, reading and writing of the protocols, and
// the limits in [Limits]. It knows nothing of how ids come to be: that is behind [IDs].
// Each connection has one goroutine, which answers its calls in order.
//
// The codecs are not those of the Thrift library, which are 3 to 11 times slower and cannot
// read simplejson: docs/decisions/0014-thrift-codecs.md. Tests compare both.
//
// Sources: the Thrift protocol specifications (binary, compact, framed), and for json and
// simplejson, which have none, the output of the libraries.
package thriftrpc

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/snowflake"
)

// IDs makes the ids. All methods are safe for concurrent use. An error becomes a
// TApplicationException (INTERNAL_ERROR) with the error's code and text.
type IDs interface {
	// NextID returns a unique id. It may wait, but not for long: later calls on the
	// connection wait too.
	NextID() (snowflake.ID, error)
	// Worker returns the current worker of this node.
	Worker() (datacenter, worker int, err error)
	// NowMillis returns the node's clock, unix milliseconds.
	NowMillis() int64
}

// Config configures a [Server]. Only IDs is required.
type Config struct {
	// IDs answers the calls.
	IDs IDs
	// TLS turns on TLS. The server works on a copy without NextProtos: Thrift clients
	// negotiate none. Nil: connections that begin a TLS handshake are closed.
	TLS *tls.Config
	// Access decides who may have IDs: by the address of a client, and by its certificate, since
	// Thrift has no credentials. Nil: everybody.
	Access *access.Control
	// TLSRequired closes connections without TLS.
	TLSRequired bool
	// AssumeMethod is the method called by a simplejson struct without a message around it,
	// which some libraries write: it does not name the method. Default "get_id".
	AssumeMethod string
	// Limits bounds the server; the zero value means the defaults.
	Limits Limits
	// Observe, if not nil, is called once for every answer, before it is written. The method
	// is one of the interface or "other"; the agent is a user agent, "other" for those that have
	// no label of their own, or "" for methods without one; the code is "ok" or an isotone.Code.
	// It runs on the connection's goroutine and must not block.
	Observe func(method, agent, code string)
	// Log takes failures to accept at Warn, and the noise that clients cause at Debug. Nil
	// discards all.
	Log *slog.Logger
}

// Limits bounds what clients can make the server hold (I7). A field that is 0 or less has
// its default.
type Limits struct {
	// ConnectionsMax bounds open connections; those beyond it are closed at once, since
	// Thrift has no answer for it. Default 4096: a client process needs one, and each takes
	// at most about 100 KiB with its buffers.
	ConnectionsMax int
	// MessageBytesMax bounds a message, and a frame. Default 16 KiB: a call of the interface
	// has 30 bytes and its user agent.
	MessageBytesMax int
	// StringBytesMax bounds a string in a message, including the method's name. Default
	// 4 KiB.
	StringBytesMax int
	// DepthMax bounds the nesting of containers in skipped fields. Default 16; the interface
	// has none.
	DepthMax int
	// AgentBytesMax bounds a user agent that is passed to Observe; a longer one is "other".
	// Default 64: it becomes the label of a metric.
	AgentBytesMax int
	// AgentsMax bounds the different user agents passed to Observe; the first ones count.
	// Default 64.
	AgentsMax int
	// PipelineMax bounds the calls of a connection whose answers have not been written; no
	// further call is read until they are. Default 1024.
	PipelineMax int
	// UnreadBytesMax sets the send buffer of a connection, in bytes (Linux doubles it).
	// Default 256 KiB.
	UnreadBytesMax int
	// ReadTimeout bounds the TLS handshake, and each message from its first byte to its
	// last. Default 10 s.
	ReadTimeout time.Duration
	// IdleTimeout bounds the wait for the first and for the next message. Default 10 min:
	// the client libraries do not reconnect by themselves.
	IdleTimeout time.Duration
	// WriteTimeout bounds one write of answers. Default 10 s.
	WriteTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		ConnectionsMax:  orDefault(l.ConnectionsMax, 4096),
		MessageBytesMax: orDefault(l.MessageBytesMax, 16<<10),
		StringBytesMax:  orDefault(l.StringBytesMax, 4<<10),
		DepthMax:        orDefault(l.DepthMax, 16),
		AgentBytesMax:   orDefault(l.AgentBytesMax, 64),
		AgentsMax:       orDefault(l.AgentsMax, 64),
		PipelineMax:     orDefault(l.PipelineMax, 1024),
		UnreadBytesMax:  orDefault(l.UnreadBytesMax, 256<<10),
		ReadTimeout:     orDefault(l.ReadTimeout, 10*time.Second),
		IdleTimeout:     orDefault(l.IdleTimeout, 10*time.Minute),
		WriteTimeout:    orDefault(l.WriteTimeout, 10*time.Second),
	}
}

func orDefault[T cmp.Ordered](value, def T) T {
	var zero T
	if value <= zero {
		return def
	}
	return value
}
