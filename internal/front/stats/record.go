package stats

import (
	"encoding/hex"
	"log/slog"
	"math"
	"strings"
	"time"
)

// Record is one request in the log.
type Record struct {
	// Time is when the request was answered.
	Time time.Time
	// ID is its request ID, Trace the ID of its trace; all zero: none.
	ID    string
	Trace [16]byte
	// Protocol is http1, https1, h2c, h2, h3 or grpc.
	Protocol     string
	Method, Path string
	// Status is that of HTTP; 0 means that the answer was cut.
	Status int
	// Code is ok or an error code.
	Code string
	Section
}

// The message and the keys of a record's line. The proxy's lines use the same.
const (
	message       = "request"
	messageFailed = "request failed" // of the proxy, for a request that it could not serve

	keyID       = "request_id"
	keyTrace    = "trace_id"
	keyProtocol = "protocol"
	keyMethod   = "method"
	keyPath     = "path"
	keyStatus   = "status"
	keyCode     = "code"
	keyTarget   = "target"  // of the proxy: the path with its query
	keyBackend  = "backend" // of the proxy: where the request went

	// In microseconds, with a fraction.
	keyWall   = "wall_us"
	keyUser   = "user_us"
	keySystem = "system_us"
	keyStall  = "stall_us"
)

const (
	// pathLogMax and methodLogMax bound the path and the method in a line, which clients
	// choose.
	pathLogMax   = 256
	methodLogMax = 32
)

// clip returns a copy of the first bytes of s: a record may outlive the request that s is a
// part of.
func clip(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// appendAttrs appends the record as attributes.
func (r *Record) appendAttrs(attrs []slog.Attr) []slog.Attr {
	attrs = append(attrs, slog.String(keyID, r.ID))
	if r.Trace != [16]byte{} {
		attrs = append(attrs, slog.String(keyTrace, hex.EncodeToString(r.Trace[:])))
	}
	attrs = append(attrs,
		slog.String(keyProtocol, r.Protocol), slog.String(keyMethod, r.Method), slog.String(keyPath, r.Path),
		slog.Int(keyStatus, r.Status), slog.String(keyCode, r.Code))
	return r.Section.AppendAttrs(attrs)
}

// AppendAttrs appends the times of the section as in the line of a record: only wall, if the
// CPU time is not known.
func (s Section) AppendAttrs(attrs []slog.Attr) []slog.Attr {
	attrs = append(attrs, micros(keyWall, s.Wall))
	if s.Measured {
		attrs = append(attrs, micros(keyUser, s.User), micros(keySystem, s.System), micros(keyStall, s.Stall()))
	}
	return attrs
}

// micros returns a time as an attribute; fromMicros is its inverse.
func micros(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d)/float64(time.Microsecond))
}

func fromMicros(us float64) time.Duration {
	return time.Duration(math.Round(us * float64(time.Microsecond)))
}
