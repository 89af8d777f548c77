package driver

import (
	"bufio"
	"bytes"
	"net"
	"testing"
)

// deaf is a connection to a server that reads nothing.
type deaf struct{ net.Conn }

func (deaf) Write(b []byte) (int, error) { return len(b), nil }

func answering(text string) *conn {
	return &conn{Conn: deaf{}, in: bufio.NewReader(bytes.NewReader([]byte(text)))}
}

const (
	postgresRow   = "D\x00\x00\x00\x0c\x00\x01\x00\x00\x00\x0242"
	postgresNull  = "D\x00\x00\x00\x0a\x00\x01\xff\xff\xff\xff"
	postgresError = "E\x00\x00\x00\x19SERROR\x00C22000\x00Mfull\x00\x00"
	postgresReady = "Z\x00\x00\x00\x05I"
)

func TestQuery_ItTakesTheValueOrTheError(t *testing.T) {
	for answer, want := range map[string]string{
		postgresRow + postgresReady:                       "42",
		postgresError + postgresReady:                     "unavailable: full",
		postgresRow + postgresError + postgresReady:       "unavailable: full",
		postgresNull + postgresReady:                      `malformed: a row "\x00\x01\xff\xff\xff\xff"`,
		postgresError:                                     "EOF",
		"D\x00\x01\x00\x05":                               "malformed: a message of 65541 bytes",
		"D\x00\x00\x00\x03":                               "malformed: a message of 3 bytes",
		"E\x00\x00\x00\x0cC25006\x00\x00" + postgresReady: "unavailable: it is a standby",
	} {
		got, err := answering(answer).query("SELECT 42")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s: want %s", answer, got, want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	f.Add(postgresRow + postgresReady)
	f.Add(postgresNull + postgresError + postgresReady)
	f.Fuzz(func(t *testing.T, answer string) {
		value, err := answering(answer).query("SELECT 42")
		if err == nil && len(value) > len(answer) {
			t.Errorf("%q of %q", value, answer)
		}
		_ = greetPostgres(answering(answer))
	})
}
