package client

import (
	"encoding/hex"
	"strconv"

	"github.com/isotone/isotone"
)

// requestSize is the length of the longest request: TS with a count of ten digits and a mode. TS64 has six
// digits at most.
const requestSize = len("*3\r\n$2\r\nTS\r\n$10\r\n4294967296\r\n$6\r\nQUORUM\r\n")

// name returns the command as a bulk string.
func (k kind) name() string {
	switch {
	case k == kindID:
		return "$9\r\nSNOWFLAKE\r\n"
	case k.is64():
		return "$4\r\nTS64\r\n"
	}
	return "$2\r\nTS\r\n"
}

// mode returns the argument that names the read mode, or "".
func (k kind) mode() string {
	switch k {
	case kindQuorum, kind64 + kindQuorum:
		return "$6\r\nQUORUM\r\n"
	case kindLease, kind64 + kindLease:
		return "$5\r\nLEASE\r\n"
	}
	return ""
}

// appendRequest appends TS, TS64 or SNOWFLAKE as an array of bulk strings.
func appendRequest(b []byte, k kind, count uint64) []byte {
	switch {
	case k == kindID && count == 1:
		return append(append(b, "*1\r\n"...), k.name()...)
	case k.mode() == "":
		return appendCount(append(append(b, "*2\r\n"...), k.name()...), count)
	}
	return append(appendCount(append(append(b, "*3\r\n"...), k.name()...), count), k.mode()...)
}

// aboveSize is the length of the longest request with a floor.
const aboveSize = requestSize + len("64$5\r\nFLOOR\r\n$32\r\n\r\n") + 2*isotone.TimestampSize

// appendAbove appends TS or TS64 with a floor.
func appendAbove(b []byte, k kind, count uint64, floor isotone.Timestamp) []byte {
	head, mode := "*5\r\n", k.mode()
	if mode == "" {
		head = "*4\r\n"
	}
	b = append(appendCount(append(append(b, head...), k.name()...), count), mode...)
	var bytes [isotone.TimestampSize]byte
	text, _ := floor.AppendBinary(bytes[:0])
	b = hex.AppendEncode(append(b, "$5\r\nFLOOR\r\n$32\r\n"...), text)
	return append(b, "\r\n"...)
}

func appendCount(b []byte, count uint64) []byte {
	var number [20]byte
	return appendBulk(b, strconv.AppendUint(number[:0], count, 10))
}

func appendBulk[T string | []byte](b []byte, text T) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(text)), 10)
	b = append(b, "\r\n"...)
	b = append(b, text...)
	return append(b, "\r\n"...)
}

// appendCommand appends any command.
func appendCommand(b []byte, args ...string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(args)), 10)
	b = append(b, "\r\n"...)
	for _, arg := range args {
		b = appendBulk(b, arg)
	}
	return b
}
