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
	"github.com/isotone/isotone/internal/reply"
)

// redisLineMax bounds a line of a reply: an error message, or a length.
const redisLineMax = 4 << 10

// key is a string key of a Redis server.
//
// It does not use a client library, see docs/decisions/0008-a-small-redis-reader.md: the
// length that a reply announces must be bounded, no goroutine may outlive a load, and a
// server that is down must not be logged every second.
type key struct {
	addr     string
	to       *destination
	tls      *tls.Config // nil: plain TCP
	user     string
	password string
	db       int
	key      string
	shown    string

	conn   net.Conn // nil: not connected
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
	k.addr, k.to = net.JoinHostPort(u.Hostname(), port), newDestination(u.Hostname())
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

// load asks for the length first, then for the value, limited to sizeMax because the value
// may have been replaced meanwhile.
func (k *key) load(ctx context.Context, sizeMax int) ([]byte, error) {
	kept := k.conn != nil
	value, err := k.try(ctx, sizeMax)
	if kept && k.conn == nil && ctx.Err() == nil {
		// The connection of the last load was dead, for example after a server restart.
		value, err = k.try(ctx, sizeMax)
	}
	if done := ctx.Err(); err != nil && done != nil {
		return nil, done // not the error that it caused on the connection
	}
	return value, err
}

// try loads once. It closes a connection that became unusable.
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
	v, err := k.do(0, "STRLEN", k.key)
	switch {
	case err != nil:
		return nil, err
	case v.Int == 0:
		return nil, isotone.Errorf(isotone.CodeNotFound, "the key is missing or empty")
	case v.Int > int64(sizeMax):
		return nil, errTooLarge(sizeMax)
	}
	v, err = k.do(sizeMax+1, "GETRANGE", k.key, "0", strconv.Itoa(sizeMax))
	if err == nil && len(v.Text) > sizeMax {
		return nil, errTooLarge(sizeMax)
	}
	return v.Text, err
}

// withoutSecrets returns what a server says without the user and password that it repeats: servers
// that do not know AUTH name its arguments.
func (k *key) withoutSecrets(text string) string {
	for _, secret := range []string{k.password, k.user} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

func (k *key) connect(ctx context.Context) error {
	if k.conn != nil {
		return nil
	}
	var conn net.Conn
	var err error
	if k.tls != nil {
		conn, err = k.to.dialTLS(ctx, k.addr, k.tls)
	} else {
		conn, err = k.to.dial(ctx, "tcp", k.addr)
	}
	if err != nil {
		return onlyRefused(err)
	}
	k.conn = conn
	return nil
}

// greet authenticates and selects the database.
func (k *key) greet() error {
	var err error
	switch {
	case k.user != "":
		_, err = k.do(0, "AUTH", k.user, k.password)
	case k.password != "":
		_, err = k.do(0, "AUTH", k.password)
	}
	if err == nil && k.db != 0 {
		_, err = k.do(0, "SELECT", strconv.Itoa(k.db))
	}
	return err
}

// do sends a command and reads its reply, a number or a string of at most max bytes. It
// closes the connection if that is unusable afterwards.
func (k *key) do(max int, args ...string) (reply.Value, error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := k.conn.Write(command)
	var v reply.Value
	if err == nil {
		v, err = reply.Read(k.reader, reply.Limits{Bytes: max})
	}
	var refusal reply.Error
	switch {
	case errors.As(err, &refusal):
		code, _ := refusal.Code()
		return v, isotone.Errorf(code, "the server says: %s", k.withoutSecrets(string(refusal)))
	case errors.Is(err, reply.ErrMalformed), err == nil && v.Kind == '$' && v.Text == nil:
		err = isotone.Errorf(isotone.CodeInternal, "the reply is not one of Redis")
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		k.close()
	}
	return v, err
}
