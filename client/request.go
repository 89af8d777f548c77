package client

import (
	"strconv"

	"github.com/isotone/isotone"
)

// requestSize is the length of the longest request: TS with a count of ten digits and a mode.
const requestSize = len("*3\r\n$2\r\nTS\r\n$10\r\n4294967296\r\n$6\r\nQUORUM\r\n")

// appendRequest appends TS or SNOWFLAKE as an array of bulk strings.
func appendRequest(b []byte, k kind, count uint64) []byte {
	var number [20]byte
	digits := strconv.AppendUint(number[:0], count, 10)
	mode := ""
	switch k {
	case kindQuorum:
		mode = "$6\r\nQUORUM\r\n"
	case kindLease:
		mode = "$5\r\nLEASE\r\n"
	case kindID:
		if count == 1 {
			return append(b, "*1\r\n$9\r\nSNOWFLAKE\r\n"...)
		}
		b = append(b, "*2\r\n$9\r\nSNOWFLAKE\r\n"...)
		return appendBulk(b, digits)
	}
	if mode == "" {
		b = append(b, "*2\r\n$2\r\nTS\r\n"...)
	} else {
		b = append(b, "*3\r\n$2\r\nTS\r\n"...)
	}
	return append(appendBulk(b, digits), mode...)
}

// appendAbove appends TS with a floor.
func appendAbove(b []byte, k kind, count uint64, floor isotone.Timestamp) []byte {
	args := []string{"TS", strconv.FormatUint(count, 10)}
	switch k {
	case kindQuorum:
		args = append(args, "QUORUM")
	case kindLease:
		args = append(args, "LEASE")
	}
	return appendCommand(b, append(args, "FLOOR", floor.String())...)
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
