package bench

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/isotone/isotone/internal/reply"
)

// This file authenticates the load generator.

// authorization is what a protocol tells nodes about the user. The zero value tells nothing.
type authorization struct {
	user, secret string
	// everywhere: it may be told to any address.
	everywhere bool
}

func (o *Options) authorization(secure bool) authorization {
	return authorization{o.User, o.Secret, secure}
}

// check returns an error if the secret must not be sent to addr.
func (a authorization) check(addr string) error {
	if host, _, _ := net.SplitHostPort(addr); a.user == "" || a.everywhere || loopback(host) {
		return nil
	}
	return fmt.Errorf("%s: the secret would cross the network in plaintext: name targets as https://HOST:PORT", addr)
}

// header returns the value of the field Authorization (RFC 7617), or "".
func (a authorization) header() string {
	if a.user == "" {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.user+":"+a.secret))
}

// authReplyMax bounds the answer to AUTH.
const authReplyMax = 512

// authenticate sends AUTH on a new connection and waits for OK.
func (a authorization) authenticate(c net.Conn) error {
	if a.user == "" {
		return nil
	}
	if _, err := fmt.Fprintf(c, "*3\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(a.user), a.user, len(a.secret), a.secret); err != nil {
		return err
	}
	var line []byte // byte by byte, so that nothing of the next answer is taken
	for !strings.HasSuffix(string(line), "\r\n") {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if line = append(line, b[0]); len(line) > authReplyMax {
			return fmt.Errorf("%w: more than %d bytes to AUTH", errMalformed, authReplyMax)
		}
	}
	text := strings.TrimSuffix(string(line), "\r\n")
	if text == "+OK" {
		return nil
	}
	if refused, ok := strings.CutPrefix(text, "-"); ok {
		if e, err := reply.Error(refused).Decode(); err == nil {
			return e
		}
	}
	return fmt.Errorf("%w: AUTH is not answered with OK", errMalformed)
}
