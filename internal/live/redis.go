package live

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// redisLineMax bounds a line of a reply: an error message, or a length.
const redisLineMax = 4 << 10

// key is a key of a Redis server, a string.
//
// This is no client library, because the four commands it needs fit on a page, and
// then its limits are ours: a reply announces a length that must not be believed, a
// connection has no goroutine that outlives a load, and a server that is away makes
// no line in the log for each second.
type key struct {
	addr     string
	tls      *tls.Config // nil: none
	user     string
	password string
	db       int
	key      string
	shown    string

	conn   net.Conn // nil: none
	reader *bufio.Reader
}

// parseRedis reads redis://[[user]:password@]host[:port][/db]#key.
func parseRedis(u *url.URL) (open func() loader, err error) {
	if u.Fragment == "" {
		return nil, errors.New(`want the key after "#"`)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return nil, errors.New(`want a URL without "?"`)
	}
	k := key{key: u.Fragment, user: u.User.Username(), shown: shown(u)}
	k.password, _ = u.User.Password()
	if k.user != "" && k.password == "" {
		return nil, errors.New("want user:password or :password before the host")
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if k.db, err = strconv.Atoi(path); err != nil || k.db < 0 {
			return nil, errors.New("want the number of a database after the host")
		}
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	k.addr = net.JoinHostPort(u.Hostname(), port)
	secure := u.Scheme == "rediss"
	return func() loader {
		opened := k
		if secure {
			opened.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
		}
		return &opened
	}, nil
}

func (k *key) String() string { return k.shown }

func (k *key) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn, k.reader = nil, nil
	}
}

// load asks for the length, and only then for the value, and even then for no more
// than may be: it may have been replaced meanwhile.
func (k *key) load(ctx context.Context, sizeMax int) ([]byte, error) {
	kept := k.conn != nil
	value, err := k.try(ctx, sizeMax)
	if kept && k.conn == nil && ctx.Err() == nil {
		// A connection from the last load was dead, as after a restart of the server.
		value, err = k.try(ctx, sizeMax)
	}
	if done := ctx.Err(); err != nil && done != nil {
		return nil, done // and not whatever the connection said of it
	}
	return value, err
}

// try loads once. After an error that leaves the connection unusable it has none.
func (k *key) try(ctx context.Context, sizeMax int) (value []byte, err error) {
	if err := k.connect(ctx); err != nil {
		return nil, err
	}
	conn := k.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			k.close()
		}
	}()
	if k.reader == nil {
		k.reader = bufio.NewReaderSize(conn, redisLineMax)
		if err := k.greet(); err != nil {
			k.close() // the next load greets again
			return nil, err
		}
	}
	length, _, err := k.do(0, "STRLEN", k.key)
	switch {
	case err != nil:
		return nil, err
	case length == 0:
		return nil, isotone.Errorf(isotone.CodeNotFound, "the key is missing or empty")
	case length > int64(sizeMax):
		return nil, errTooLarge(sizeMax)
	}
	_, value, err = k.do(sizeMax+1, "GETRANGE", k.key, "0", strconv.Itoa(sizeMax))
	if err == nil && len(value) > sizeMax {
		return nil, errTooLarge(sizeMax)
	}
	return value, err
}

func (k *key) connect(ctx context.Context) error {
	if k.conn != nil {
		return nil
	}
	var conn net.Conn
	var err error
	if k.tls != nil {
		conn, err = (&tls.Dialer{Config: k.tls}).DialContext(ctx, "tcp", k.addr)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", k.addr)
	}
	if err != nil {
		return err
	}
	k.conn = conn
	return nil
}

// greet says who we are, and chooses the database.
func (k *key) greet() error {
	var err error
	switch {
	case k.user != "":
		_, _, err = k.do(0, "AUTH", k.user, k.password)
	case k.password != "":
		_, _, err = k.do(0, "AUTH", k.password)
	}
	if err == nil && k.db != 0 {
		_, _, err = k.do(0, "SELECT", strconv.Itoa(k.db))
	}
	return err
}

// do sends a command and reads its reply, a number or a string of at most max bytes.
// It closes a connection that is of no more use.
func (k *key) do(max int, args ...string) (number int64, text []byte, err error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err = k.conn.Write(command)
	if err == nil {
		number, text, err = readReply(k.reader, max)
	}
	var refusal redisError
	switch {
	case errors.As(err, &refusal):
		return 0, nil, isotone.Errorf(refusal.code(), "the server says: %s", string(refusal))
	case err != nil:
		k.close()
	}
	return number, text, err
}

// redisError is a reply that says no. The connection goes on.
type redisError string

func (e redisError) Error() string { return string(e) }

func (e redisError) code() isotone.Code {
	word, _, _ := strings.Cut(string(e), " ")
	switch word {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		return isotone.CodeUnauthorized
	case "WRONGTYPE":
		return isotone.CodeInvalidArgument
	case "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN":
		return isotone.CodeOverloaded
	}
	return isotone.CodeInternal
}

var errRedisReply = isotone.Errorf(isotone.CodeInternal, "the reply is not one of Redis")

// readReply reads a simple string, an error, a number or a bulk string of at most max
// bytes.
func readReply(r *bufio.Reader, max int) (number int64, text []byte, err error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return 0, nil, errRedisReply
	case err == io.EOF:
		return 0, nil, io.ErrUnexpectedEOF
	case err != nil:
		return 0, nil, err
	case len(line) < len("+\r\n") || line[len(line)-2] != '\r':
		return 0, nil, errRedisReply
	}
	kind, rest := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return 0, []byte(rest), nil
	case '-':
		return 0, nil, redisError(rest)
	case ':', '$':
		if number, err = strconv.ParseInt(rest, 10, 64); err != nil {
			return 0, nil, errRedisReply
		}
		if kind == ':' {
			return number, nil, nil
		}
	}
	if kind != '$' || number < 0 || number > int64(max) {
		return 0, nil, errRedisReply
	}
	text = make([]byte, number+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, nil, err
	}
	if string(text[number:]) != "\r\n" {
		return 0, nil, errRedisReply
	}
	return 0, text[:number], nil
}
