package demolive

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// store is where the document is, and the node loads it from.
type store interface {
	write(data []byte) error
	close() error // removes what was written
}

// file is a document on disk.
type file string

// write replaces the file by a rename, so that no load finds half of a document.
func (f file) write(data []byte) error {
	beside := string(f) + ".new"
	if err := os.WriteFile(beside, data, 0o600); err != nil {
		return err
	}
	return os.Rename(beside, string(f))
}

func (f file) close() error { return nil } // its directory is removed

const (
	// redisTimeout bounds a command.
	redisTimeout = 5 * time.Second
	// redisExpires is after how many seconds Redis removes the key if the demo was killed.
	redisExpires = "300"
)

// redis is a document in Redis.
type redis struct {
	key     string
	conn    net.Conn
	reader  *bufio.Reader
	written bool // the key is ours
}

// openRedis connects with the server of a valid URL.
func openRedis(ctx context.Context, setting string) (*redis, error) {
	u, err := url.Parse(setting)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	dialer := net.Dialer{Timeout: redisTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("--redis: %w", err)
	}
	s := &redis{key: u.Fragment, conn: conn, reader: bufio.NewReader(conn)}
	password, _ := u.User.Password()
	switch {
	case u.User.Username() != "":
		_, err = s.do("AUTH", u.User.Username(), password)
	case password != "":
		_, err = s.do("AUTH", password)
	}
	if db := strings.Trim(u.Path, "/"); err == nil && db != "" {
		_, err = s.do("SELECT", db)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

// do sends a command and reads its reply, which has no text.
func (s *redis) do(args ...string) (reply.Value, error) {
	if err := s.conn.SetDeadline(time.Now().Add(redisTimeout)); err != nil {
		return reply.Value{}, fmt.Errorf("--redis: %w", err)
	}
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := s.conn.Write(command)
	var v reply.Value
	if err == nil {
		v, err = reply.Read(s.reader, reply.Limits{})
	}
	if err != nil {
		err = fmt.Errorf("--redis: %s: %w", args[0], err)
	}
	return v, err
}

// write refuses a key that exists when it is written for the first time.
func (s *redis) write(data []byte) error {
	args := []string{"SET", s.key, string(data), "EX", redisExpires}
	if !s.written {
		args = append(args, "NX")
	}
	v, err := s.do(args...)
	if err != nil {
		return err
	}
	if v.Kind != '+' {
		return isotone.Errorf(isotone.CodeInvalidArgument, "--redis: the key %q exists; want one that does not", s.key)
	}
	s.written = true
	return nil
}

func (s *redis) close() (err error) {
	if s.written {
		_, err = s.do("DEL", s.key)
	}
	_ = s.conn.Close()
	return err
}
