package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/isotone/isotone/snowflake"
)

// protocol is a way to ask for one ID.
type protocol interface {
	fmt.Stringer
	request() []byte // the bytes of one call, the same for all
	answer(in *bufio.Reader) (snowflake.ID, error)
}

// framed is get_id of Thrift's binary protocol, framed.
type framed struct{}

func (framed) String() string { return "get_id, framed binary" }

func (framed) request() []byte {
	const agent = "isotone-bench"
	b := []byte{0, 0, 0, 0, 0x80, 1, 0, 1}
	b = binary.BigEndian.AppendUint32(b, uint32(len("get_id")))
	b = append(b, "get_id\x00\x00\x00\x01\x0b\x00\x01"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(agent)))
	b = append(append(b, agent...), 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// An answer is a frame: its length, the head of a message, and field 0 with the ID.
const (
	answerBytes = 4 + 4 + 4 + len("get_id") + 4 + 1 + 2 + 8 + 1
	idAt        = answerBytes - 9
)

func (framed) answer(in *bufio.Reader) (snowflake.ID, error) {
	b, err := in.Peek(answerBytes)
	if err != nil {
		return 0, fmt.Errorf("no answer: %w; got %x", err, b)
	}
	if b[idAt-3] != 10 {
		return 0, fmt.Errorf("the answer is no ID: %x", b)
	}
	id := snowflake.ID(binary.BigEndian.Uint64(b[idAt:]))
	_, err = in.Discard(answerBytes)
	return id, err
}

// web is GET /api/snowflake of HTTP/1.1, with keep-alive.
type web struct{ host string }

func (web) String() string { return "GET /api/snowflake, HTTP/1.1" }

func (w web) request() []byte {
	return []byte("GET /api/snowflake HTTP/1.1\r\nHost: " + w.host + "\r\n\r\n")
}

// answer does not allocate: garbage of the load generator would show in the latencies.
func (web) answer(in *bufio.Reader) (snowflake.ID, error) {
	status, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return 0, fmt.Errorf("the answer is no ID: %s", bytes.TrimSpace(status))
	}
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
	if length < 1 || length > 32 {
		return 0, fmt.Errorf("an answer of %d bytes: want an ID", length)
	}
	body, err := in.Peek(length)
	if err != nil {
		return 0, err
	}
	// snowflake.Parse puts the text into its error, so it would be allocated here.
	id, err := strconv.ParseInt(string(bytes.TrimSpace(body)), 10, 64)
	if err != nil {
		return 0, err
	}
	_, err = in.Discard(length)
	return snowflake.ID(id), err
}
