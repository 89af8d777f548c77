package thriftrpc

import (
	"encoding/json"
	"math"
	"strconv"
)

// bareMethodID is the only method with an argument, so a bare struct with a user agent calls
// it.
var bareMethodID = []byte(methodID)

// jsonVersion begins each message of TJSON.
const jsonVersion = 1

// jsonCodec is two protocols, detected for each message:
//
//	[1,"get_id",1,0,{"1":{"str":"me"}}]       json
//	["get_id",1,0,{"useragent":"me"}]         simplejson
//	{"useragent":"me"}                        simplejson, a struct without a message
type jsonCodec struct {
	assume []byte // the method of a struct without a message
}

func (w jsonCodec) read(r *cursor, c *call) error {
	first, err := r.peek()
	switch {
	case err != nil:
		return err
	case first == '{':
		return w.readBare(r, c)
	}
	if err := w.readHead(r, c); err != nil {
		return err
	}
	if err := r.expect(','); err != nil {
		return err
	}
	if c.style == styleSimple {
		err = w.simpleArguments(r, c)
	} else {
		err = w.arguments(r, c)
	}
	if err != nil {
		return err
	}
	return r.expect(']')
}

// readBare reads a struct without a message.
func (w jsonCodec) readBare(r *cursor, c *call) error {
	c.style, c.kind, c.name, c.headed = styleBare, kindCall, w.assume, true
	if err := w.simpleArguments(r, c); err != nil {
		return err
	}
	if c.given {
		c.name = bareMethodID
	}
	return nil
}

func (jsonCodec) readHead(r *cursor, c *call) error {
	if err := r.expect('['); err != nil {
		return err
	}
	first, err := r.peek()
	switch {
	case err != nil:
		return err
	case first == '"':
		c.style = styleSimple
	default:
		version, err := r.integer(math.MinInt32, math.MaxInt32)
		switch {
		case err != nil:
			return err
		case version != jsonVersion:
			return errVersion
		}
		if err := r.expect(','); err != nil {
			return err
		}
	}
	if c.name, err = r.quoted(); err != nil {
		return err
	}
	if len(c.name) == 0 {
		return errNameEmpty
	}
	if err := r.expect(','); err != nil {
		return err
	}
	kind, err := r.integer(math.MinInt8, math.MaxInt8)
	if err != nil {
		return err
	}
	if err := r.expect(','); err != nil {
		return err
	}
	seq, err := r.integer(math.MinInt32, math.MaxInt32)
	if err != nil {
		return err
	}
	c.kind, c.seq, c.headed = byte(kind), int32(seq), true
	return nil
}

// arguments reads {"1":{"str":"me"}}.
func (jsonCodec) arguments(r *cursor, c *call) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		if more, err := r.member(first); err != nil || !more {
			return err
		}
		key, err := r.quoted()
		if err != nil {
			return err
		}
		field, err := fieldNumber(key)
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := r.expect('{'); err != nil {
			return err
		}
		kind, err := r.quoted()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		switch {
		case !isJSONType(kind):
			return errType
		case field == fieldAgent && string(kind) == "str":
			c.agent, err = r.quoted()
			c.given = true
		default:
			err = r.value(r.limits.DepthMax)
		}
		if err != nil {
			return err
		}
		if err := r.expect('}'); err != nil {
			return err
		}
	}
}

func isJSONType(b []byte) bool {
	switch string(b) {
	case "tf", "i8", "i16", "i32", "i64", "dbl", "str", "rec", "map", "set", "lst", "uid":
		return true
	}
	return false
}

// simpleArguments reads {"useragent":"me"}.
func (jsonCodec) simpleArguments(r *cursor, c *call) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		if more, err := r.member(first); err != nil || !more {
			return err
		}
		key, err := r.quoted()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		begin, err := r.peek()
		switch {
		case err != nil:
		case begin == '"' && string(key) == nameAgent:
			c.agent, err = r.quoted()
			c.given = true
		default:
			err = r.value(r.limits.DepthMax)
		}
		if err != nil {
			return err
		}
	}
}

func (w jsonCodec) appendResult(b []byte, c *call, value int64) []byte {
	b = w.appendHead(b, c, kindReply)
	b = appendKey(b, c, fieldSuccess, nameSuccess, "i64")
	b = strconv.AppendInt(b, value, 10)
	return w.appendTail(appendEnd(b, c), c)
}

func (w jsonCodec) appendFault(b []byte, c *call, e fault) []byte {
	b = w.appendHead(b, c, kindException)
	b = appendKey(b, c, fieldMessage, nameMessage, "str")
	b = append(appendEnd(appendQuoted(b, e.message), c), ',')
	b = appendKey(b, c, fieldKind, nameKind, "i32")
	b = strconv.AppendInt(b, int64(e.kind), 10)
	return w.appendTail(appendEnd(b, c), c)
}

// appendHead appends everything before the fields of the struct.
func (jsonCodec) appendHead(b []byte, c *call, kind byte) []byte {
	switch c.style {
	case styleBare:
		return append(b, '{')
	case styleSimple:
		b = append(b, '[')
	default:
		b = append(b, '[', '0'+jsonVersion, ',')
	}
	b = appendQuoted(b, c.name)
	b = append(b, ',', '0'+kind, ',')
	b = strconv.AppendInt(b, int64(c.seq), 10)
	return append(b, ',', '{')
}

// appendTail appends everything after the fields.
func (jsonCodec) appendTail(b []byte, c *call) []byte {
	if c.style == styleBare {
		return append(b, '}')
	}
	return append(b, '}', ']')
}

// appendKey appends everything before the value of a field.
func appendKey(b []byte, c *call, field int16, name, kind string) []byte {
	if c.style != styleNormal {
		b = append(b, '"')
		b = append(b, name...)
		return append(b, '"', ':')
	}
	b = append(b, '"')
	b = strconv.AppendInt(b, int64(field), 10)
	b = append(b, `":{"`...)
	b = append(b, kind...)
	return append(b, '"', ':')
}

// appendEnd appends everything after it.
func appendEnd(b []byte, c *call) []byte {
	if c.style != styleNormal {
		return b
	}
	return append(b, '}')
}

func appendQuoted[T string | []byte](b []byte, s T) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == ' ' || c == '.':
		default:
			quoted, _ := json.Marshal(string(s)) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
