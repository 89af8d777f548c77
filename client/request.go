package client

import (
	"encoding/hex"
	"strconv"

	"github.com/isotone/isotone"
)

// requestSize is the length of the longest request: TS with a count of ten digits and a mode.
const requestSize = len("*3\r\n$2\r\nTS\r\n$10\r\n4294967296\r\n$6\r\nQUORUM\r\n")

// mode returns the argument that names the read mode, or "".
func (k kind) mode() string {
	switch k {
	case kindQuorum:
		return "$6\r\nQUORUM\r\n"
	case kindLease:
		return "$5\r\nLEASE\r\n"
	}
	return ""
}

// appendRequest appends TS or SNOWFLAKE as an array of bulk strings.
func appendRequest(b []byte, k kind, count uint64) []byte {
	switch {
	case k == kindID && count == 1:
		return append(b, "*1\r\n$9\r\nSNOWFLAKE\r\n"...)
	case k == kindID:
		return appendCount(append(b, "*2\r\n$9\r\nSNOWFLAKE\r\n"...), count)
	case k.mode() == "":
		return appendCount(append(b, "*2\r\n$2\r\nTS\r\n"...), count)
	}
	return append(appendCount(append(b, "*3\r\n$2\r\nTS\r\n"...), count), k.mode()...)
}

// aboveSize is the length of the longest TS with a floor.
const aboveSize = requestSize + len("$5\r\nFLOOR\r\n$32\r\n\r\n") + 2*isotone.TimestampSize

// appendAbove appends TS with a floor.
func appendAbove(b []byte, k kind, count uint64, floor isotone.Timestamp) []byte {
	head, mode := "*5\r\n$2\r\nTS\r\n", k.mode()
	if mode == "" {
		head = "*4\r\n$2\r\nTS\r\n"
	}
	b = append(appendCount(append(b, head...), count), mode...)
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
