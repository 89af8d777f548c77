package protocoltrace

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/isotone/isotone/spec"
)

// appendEvent appends an event as JSON, as [json.Marshal] does, but in a tenth of the time: a node under load writes several events for each request.
func appendEvent(b []byte, e *spec.Event) []byte {
	b = appendString(append(b, `{"k":`...), string(e.Kind))
	b = strconv.AppendUint(append(b, `,"n":`...), e.Node, 10)
	b = appendUint(b, "process", e.Process)
	b = appendUint(b, "p", e.Peer)
	b = appendUint(b, "t", e.Term)
	b = appendUint(b, "i", e.Index)
	b = appendUint(b, "r", e.Round)
	b = appendUint(b, "c", e.Count)
	b = appendUint(b, "token", e.Token)
	b = appendInt(b, "at", e.At)
	b = appendInt(b, "real", e.Real)
	b = appendInt(b, "tick", e.Tick)
	b = appendUint(b, "cluster", e.Cluster)
	b = appendUint(b, "ceiling", e.Ceiling)
	b = appendBool(b, "leads", e.Leads)
	b = appendBool(b, "serves", e.Serves)
	b = appendBool(b, "transfer", e.Transfer)
	b = appendBool(b, "lease", e.Lease)
	b = appendBool(b, "raise", e.Raise)
	if e.Floor != (spec.Timestamp{}) {
		b = appendTimestamp(append(b, `,"floor":`...), e.Floor)
	}
	if len(e.Ranges) > 0 {
		b = append(b, `,"ranges":`...)
		for i, r := range e.Ranges {
			b = append(b, "[,"[min(i, 1)])
			b = appendTimestamp(append(b, `{"f":`...), r.First)
			b = append(appendTimestamp(append(b, `,"l":`...), r.Last), '}')
		}
		b = append(b, ']')
	}
	b = appendAny(b, "config", e.Config, e.Config != nil)
	b = appendAny(b, "command", e.Command, e.Command != nil)
	b = appendAny(b, "workers", e.Workers, len(e.Workers) > 0)
	b = appendAny(b, "space", e.Space, e.Space != "")
	b = appendAny(b, "fences", e.Fences, len(e.Fences) > 0)
	b = appendAny(b, "timeline", e.Timeline, e.Timeline != "")
	b = appendAny(b, "tenure", e.Tenure, e.Tenure != nil)
	b = appendAny(b, "hello", e.Hello, e.Hello != nil)
	b = appendAny(b, "members", e.Members, len(e.Members) > 0)
	b = appendUint(b, "state", e.State)
	b = appendUint(b, "wall", e.Wall)
	b = appendUint(b, "jump", e.Jump)
	b = appendUint(b, "reach", e.Reach)
	b = appendInt(b, "interval", e.Interval)
	b = appendInt(b, "steady", e.Steady)
	b = appendInt(b, "since", e.Since)
	b = appendAny(b, "proposed", e.Proposed, len(e.Proposed) > 0)
	b = appendUint(b, "clock", e.Clock)
	b = appendInt(b, "slew", e.Slew)
	b = appendAny(b, "reading", e.Reading, e.Reading != nil)
	b = appendAny(b, "session", e.Session, e.Session != nil)
	b = appendAny(b, "reply", e.Reply, e.Reply != nil)
	b = appendUint(b, "conn", e.Conn)
	b = appendAny(b, "hold", e.Hold, e.Hold != nil)
	b = appendAny(b, "stamps", e.Stamps, e.Stamps != nil)
	b = appendAny(b, "holds", e.Holds, len(e.Holds) > 0)
	b = appendUint(b, "restored", e.Restored)
	return append(b, '}')
}

func appendUint(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(appendName(b, name), n, 10)
}

func appendInt(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendBool(b []byte, name string, is bool) []byte {
	if !is {
		return b
	}
	return append(appendName(b, name), "true"...)
}

func appendTimestamp(b []byte, t spec.Timestamp) []byte {
	b = strconv.AppendUint(append(b, `{"t":`...), t.Time, 10)
	return append(strconv.AppendUint(append(b, `,"i":`...), t.Index, 10), '}')
}

// appendAny appends a field that is rare, if some is set.
func appendAny(b []byte, name string, v any, some bool) []byte {
	if !some {
		return b
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("protocoltrace: %v", err)) // it has numbers and names only
	}
	return append(appendName(b, name), text...)
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

// appendString appends a string without characters that JSON escapes.
func appendString(b []byte, s string) []byte {
	return append(append(append(b, '"'), s...), '"')
}
