package driver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/isotone/isotone"
)

// redisSystem is INCRBY of one key. Nodes after the first are its replicas; nothing makes one of them the primary.
type redisSystem struct {
	conns *conns
}

var redisOptions = map[string]string{
	"binary":     "the server (redis-server)",
	"appendonly": "no, everysec or always: when it writes to its disk what was asked; no is the default, as in Redis",
}

func (*redisSystem) Hello(options map[string]string) (Hello, error) {
	return Hello{
		System: "redis", Version: version(`v=([0-9.]+)`, option(options, "binary", "redis-server"), "--version"), Promises: "real-time",
		CountMax: 1 << 20, NodesMax: 16, Options: redisOptions,
	}, nil
}

// option returns the value of an option.
func option(options map[string]string, name, otherwise string) string {
	if value, ok := options[name]; ok {
		return value
	}
	return otherwise
}

// versionTimeout bounds how long a program may take to say its version.
const versionTimeout = 10 * time.Second

// version returns what a command says of its version: what the pattern has in parentheses. It is "" if there is no such
// command, as where only addresses are given.
func version(pattern string, command ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if found := regexp.MustCompile(pattern).FindSubmatch(out); err == nil && found != nil {
		return string(found[1])
	}
	return ""
}

func (*redisSystem) Plan(where PlanRequest, options map[string]string) (p Plan, err error) {
	appendonly, err := choice(options, "appendonly", "no", "everysec", "always")
	if err != nil {
		return p, err
	}
	binary, err := exec.LookPath(option(options, "binary", "redis-server"))
	if err != nil {
		return p, Errorf(Invalid, "%v (Debian: redis-server)", err)
	}
	persist := []string{"--appendonly", "no"}
	if appendonly != "no" {
		persist = []string{"--appendonly", "yes", "--appendfsync", appendonly}
	}
	for i, spot := range where.Nodes {
		dir := filepath.Join(where.Dir, fmt.Sprintf("redis%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return p, err
		}
		command := append([]string{
			binary, "--bind", spot.Host, "--port", strconv.Itoa(spot.Ports[0]), "--dir", dir, "--save", "", "--protected-mode", "no", "--repl-diskless-sync-delay", "0",
		}, persist...)
		if i > 0 {
			command = append(command, "--replicaof", where.Nodes[0].Host, strconv.Itoa(where.Nodes[0].Ports[0]))
		}
		p.Nodes = append(p.Nodes, NodeCommand{Command: Command{Command: command}, Address: spot.address(0)})
	}
	return p, nil
}

// address returns where a node listens with one of its ports.
func (s NodeSpot) address(port int) string {
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Ports[port]))
}

func (s *redisSystem) Connect(addresses []string, _ map[string]string) error {
	s.conns = newConns(addresses, nil)
	return nil
}

// Ready is refused until a server has loaded its disk, and a replica has reached its primary.
func (s *redisSystem) Ready(node int, deadline time.Time) error {
	return s.conns.call(node, deadline, func(c *conn) error {
		if _, err := c.command([]byte("PING\r\n")); err != nil {
			return err // INFO is answered sooner
		}
		v, err := c.command([]byte("INFO replication\r\n"))
		if err == nil && !bytes.Contains(v.Text, []byte("role:master")) && !bytes.Contains(v.Text, []byte("master_link_status:up")) {
			return Errorf(Unavailable, "the replica has not reached its primary")
		}
		return err
	})
}

func (s *redisSystem) Ask(node int, count uint64, deadline time.Time) (first isotone.Timestamp, err error) {
	err = s.conns.call(node, deadline, func(c *conn) error {
		v, err := c.command(append(strconv.AppendUint([]byte("INCRBY isotone:verify "), count, 10), "\r\n"...))
		if err != nil {
			return err
		}
		if v.Kind != ':' || v.Int < int64(count) {
			return Errorf(Malformed, "INCRBY answered %q with %d", v.Kind, v.Int)
		}
		first.Index = uint64(v.Int) - count + 1
		return nil
	})
	return first, err
}

func (s *redisSystem) Close() { s.conns.close() }
