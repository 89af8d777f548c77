package driver

import (
	"bytes"
	"encoding/binary"
	"io"
)

// postgresMessageMax bounds a message of a server, in bytes.
const postgresMessageMax = 64 << 10

// errReadOnly is the answer of a standby to what would write.
var errReadOnly = &Error{Unavailable, "it is a standby"}

// greetPostgres begins a session of the user verify, who needs no password, with version 3.0 of the protocol.
func greetPostgres(c *conn) error {
	return c.exchange(0, "\x00\x03\x00\x00user\x00verify\x00database\x00postgres\x00\x00", func(byte, []byte) error { return nil })
}

// query returns the first column of the last row.
func (c *conn) query(text string) (value string, err error) {
	err = c.exchange('Q', text+"\x00", func(kind byte, body []byte) error {
		if kind != 'D' {
			return nil
		}
		if len(body) < 6 || uint64(binary.BigEndian.Uint32(body[2:])) > uint64(len(body)-6) { // also NULL, whose length is -1
			return Errorf(Malformed, "a row %.40q", body)
		}
		value = string(body[6:][:binary.BigEndian.Uint32(body[2:])])
		return nil
	})
	return value, err
}

// exchange sends a message, of no kind if that is 0, and takes messages until the server is ready for the next one.
func (c *conn) exchange(kind byte, body string, take func(byte, []byte) error) error {
	message := []byte{kind, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(message[1:], uint32(len(body)+4))
	if kind == 0 {
		message = message[1:]
	}
	if _, err := c.Write(append(message, body...)); err != nil {
		return err
	}
	for refused := error(nil); ; {
		got, body, err := c.message()
		switch {
		case err != nil:
			return err
		case got == 'Z':
			return refused
		case got == 'E' && kind == 0:
			return refusalOf(body) // the last message
		case got == 'E':
			refused = refusalOf(body)
		default:
			err = take(got, body)
		}
		if err != nil {
			return err
		}
	}
}

// message reads one message of the server.
func (c *conn) message() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err = io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > postgresMessageMax {
		return 0, nil, Errorf(Malformed, "a message of %d bytes", size)
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(c.in, body)
	return head[0], body, err
}

// refusalOf returns an error of the server: fields that a byte names, up to a zero each.
func refusalOf(body []byte) error {
	message := ""
	for field := range bytes.SplitSeq(body, []byte{0}) {
		switch {
		case string(field) == "C25006":
			return errReadOnly
		case len(field) > 1 && field[0] == 'M':
			message = string(field[1:])
		}
	}
	return Errorf(Unavailable, "%.200s", message)
}
