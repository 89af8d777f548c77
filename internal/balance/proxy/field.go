package proxy

import (
	"bytes"

	"github.com/isotone/isotone/internal/front/head"
)

// kind is what a header field means here. Fields of all kinds but kindPlain are not
// copied as they are.
type kind uint8

const (
	kindPlain kind = iota // copied
	kindHop               // ends here: RFC 9110 §7.6.1
	kindHost
	kindLength
	kindTransfer
	kindConnection
	kindUpgrade
	kindExpect
	kindID
	kindTraceparent
	kindTracestate
	kindForwardedFor // and the others: replaced
	kindForwarded
	kindNominated // named by Connection: ends here, too
)

const fieldNameMax = 19

// kinds has the names that mean something by their length, in lower case.
var kinds = func() (table [fieldNameMax + 1][]kindName) {
	add := func(k kind, names ...string) {
		for _, name := range names {
			table[len(name)] = append(table[len(name)], kindName{name, k})
		}
	}
	add(kindHop, "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer")
	add(kindHost, "host")
	add(kindLength, "content-length")
	add(kindTransfer, "transfer-encoding")
	add(kindConnection, "connection")
	add(kindUpgrade, "upgrade")
	add(kindExpect, "expect")
	add(kindID, "x-request-id")
	add(kindTraceparent, "traceparent")
	add(kindTracestate, "tracestate")
	add(kindForwardedFor, "x-forwarded-for")
	add(kindForwarded, "x-forwarded-proto", "x-forwarded-host", "forwarded")
	return table
}()

type kindName struct {
	name string
	kind kind
}

func kindOf(name []byte) kind {
	if len(name) <= fieldNameMax {
		for i := range kinds[len(name)] {
			if k := &kinds[len(name)][i]; head.EqualFold(name, k.name) {
				return k.kind
			}
		}
	}
	return kindPlain
}

// field is one header field.
type field struct {
	head.Field
	kind kind
}

// fieldsMax bounds the fields of one message.
const fieldsMax = 100

// parseFields scans the fields of the message b, whose head is complete, from at on. It appends
// them to list, and returns where the body begins.
func parseFields(b []byte, at int, list []field) (_ []field, next int, err *fault) {
	for {
		if len(list) == fieldsMax && b[at] != '\r' {
			return list, 0, &fault{status: 431, message: "too many header fields"}
		}
		list = append(list, field{}) // scanned in place: to copy what was just written costs more
		f := &list[len(list)-1]
		last, err := f.Scan(b, at)
		if at = int(f.End); err != nil {
			return list, 0, faultOf(err)
		} else if last {
			return list[:len(list)-1], at, nil
		}
		f.kind = kindOf(f.Name(b))
	}
}

// connection is what the Connection fields of a message say.
type connection struct {
	close, keepAlive, upgrade bool
	others                    bool // it names other fields
}

// parse reads one value.
func (c *connection) parse(value []byte) *fault {
	for len(value) > 0 {
		option := value
		if i := bytes.IndexByte(value, ','); i >= 0 {
			option, value = value[:i], value[i+1:]
		} else {
			value = nil
		}
		option = bytes.Trim(option, " \t")
		switch {
		case len(option) == 0:
		case !head.Token.All(option):
			return refuse("Connection names what is no field")
		case head.EqualFold(option, "close"):
			c.close = true
		case head.EqualFold(option, "keep-alive"):
			c.keepAlive = true
		case head.EqualFold(option, "upgrade"):
			c.upgrade = true
		default:
			switch kindOf(option) {
			case kindPlain, kindHop:
				c.others = true
			default:
				// To take these away would change what the message means, or who it is from.
				return refuse("Connection names a field that cannot be left out")
			}
		}
	}
	return nil
}

// nominate marks the fields that Connection names.
func nominate(b []byte, list []field) {
	for i := range list {
		if list[i].kind != kindConnection {
			continue
		}
		for option := range bytes.SplitSeq(list[i].Value(b), []byte(",")) {
			option = bytes.Trim(option, " \t")
			for j := range list {
				if f := &list[j]; f.kind == kindPlain && bytes.EqualFold(f.Name(b), option) {
					f.kind = kindNominated
				}
			}
		}
	}
}

// appendPlain appends the lines of plain fields, as they are.
func appendPlain(out, b []byte, list []field) []byte {
	for i := 0; i < len(list); i++ {
		if list[i].kind != kindPlain {
			continue
		}
		begin := list[i].Line
		for i+1 < len(list) && list[i+1].kind == kindPlain {
			i++
		}
		out = append(out, b[begin:list[i].End]...)
	}
	return out
}
