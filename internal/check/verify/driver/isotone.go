package driver

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/cluster"
)

// isotoneSystem is a cluster of nodes of this program, each asked by the Redis protocol: those that do not lead refuse.
type isotoneSystem struct {
	conns  *conns
	kind   string // of numbers
	suffix string // of the command, with the line end
}

var isotoneOptions = map[string]string{
	"binary":  "the program of the nodes (this one)",
	"env":     "more settings of the nodes, as READ_MODE=lease,LOOPS=2",
	"mode":    "quorum or lease, with every request (the setting of the nodes)",
	"numbers": "timestamps (the default), timestamps64, ids, which are only unique, or interval: each node is asked for the time of the cluster clock",
}

func (*isotoneSystem) Hello(options map[string]string) (Hello, error) {
	h := Hello{System: "isotone", Promises: "real-time", CountMax: 1 << 32, Nodes: 3, NodesMax: 9, Ports: 2, Members: true, Options: isotoneOptions}
	numbers, err := numbersOf(options)
	switch numbers {
	case "timestamps64":
		h.CountMax = isotone.Range64CountMax
	case "ids":
		h.Promises, h.CountMax = "unique", 1
	case interval:
		h.Promises, h.CountMax = Intervals, 1
	}
	binary, err2 := binaryOf(options)
	if err == nil {
		err = err2
	}
	h.Version = version(`^isotone (\S+)`, binary, "version")
	return h, err
}

// interval is the value of the option numbers for [Intervals].
const interval = "interval"

// numbersOf returns what is asked for.
func numbersOf(options map[string]string) (string, error) {
	return choice(options, "numbers", "timestamps", "timestamps64", "ids", interval)
}

// binaryOf returns the program of the nodes.
func binaryOf(options map[string]string) (string, error) {
	if binary := options["binary"]; binary != "" {
		return binary, nil
	}
	return os.Executable()
}

func (*isotoneSystem) Plan(where PlanRequest, options map[string]string) (p Plan, err error) {
	binary, err := binaryOf(options)
	if err != nil {
		return p, err
	}
	var more, addrs, peers []string
	if env := options["env"]; env != "" {
		more = strings.Split(env, ",")
	}
	for _, setting := range more {
		if name, _, ok := strings.Cut(setting, "="); !ok || name == "" {
			return p, Errorf(Invalid, "option env: %q: want NAME=VALUE", setting)
		}
	}
	for _, spot := range where.Nodes {
		addrs, peers = append(addrs, spot.address(0)), append(peers, spot.address(1))
	}
	if !strings.HasPrefix(where.Nodes[0].Host, "127.") { // a network of their own is another machine to them
		more = append([]string{"PEER_INSECURE=1", "ANONYMOUS=all"}, more...)
	}
	if options["numbers"] == interval {
		more = append([]string{"INTERVAL_MS=100"}, more...)
	}
	for i := range where.Nodes {
		start := Command{Command: []string{binary, "serve"}, Env: append(cluster.Settings(i, addrs, peers, where.Dir), more...)}
		p.Nodes = append(p.Nodes, NodeCommand{Command: start, Address: addrs[i]})
	}
	return p, nil
}

func (s *isotoneSystem) Connect(addresses []string, options map[string]string) (err error) {
	s.suffix = "\r\n"
	if options["mode"] != "" {
		mode, err := choice(options, "mode", "quorum", "lease")
		if err != nil {
			return err
		}
		s.suffix = " " + strings.ToUpper(mode) + "\r\n"
	}
	if s.kind, err = numbersOf(options); err != nil {
		return err
	}
	s.conns = newConns(addresses, nil)
	return nil
}

// Ready holds also for a node that names a leader.
func (s *isotoneSystem) Ready(node int, deadline time.Time) (err error) {
	if s.kind == interval {
		_, _, err = s.AskInterval(node, deadline)
		return err
	}
	_, err = s.Ask(node, 1, deadline)
	if err != nil && strings.HasPrefix(failure(err).Message, "MOVED ") {
		return nil
	}
	return err
}

func (s *isotoneSystem) Ask(node int, count uint64, deadline time.Time) (first isotone.Timestamp, err error) {
	err = s.conns.call(node, deadline, func(c *conn) error {
		if s.kind == "ids" {
			first, err = c.number("SNOWFLAKE AS STRING\r\n")
			return err
		}
		counted := strconv.FormatUint(count, 10) + s.suffix
		if s.kind == "timestamps64" {
			first, err = c.number("TS64 " + counted)
			return err
		}
		v, err := c.command([]byte("TS " + counted))
		if err == nil && first.UnmarshalBinary(v.Text) != nil {
			err = Errorf(Malformed, "TS answered %.40q", v.Text)
		}
		return err
	})
	return first, err
}

// AskInterval asks any node, also one that does not lead.
func (s *isotoneSystem) AskInterval(node int, deadline time.Time) (earliest, latest isotone.Timestamp, err error) {
	err = s.conns.call(node, deadline, func(c *conn) error {
		v, err := c.command([]byte("INTERVAL\r\n"))
		if err == nil && len(v.Text) != intervalSize {
			err = Errorf(Malformed, "INTERVAL answered %.60q", v.Text)
		}
		if err == nil {
			earliest.Index, latest.Index = binary.BigEndian.Uint64(v.Text), binary.BigEndian.Uint64(v.Text[8:])
		}
		return err
	})
	return earliest, latest, err
}

// intervalSize is how many bytes the answer to INTERVAL has; the first sixteen are both bounds.
const intervalSize = 48

// number sends a command that is answered with a decimal number as a string.
func (c *conn) number(command string) (isotone.Timestamp, error) {
	v, err := c.command([]byte(command))
	if err != nil {
		return isotone.Timestamp{}, err
	}
	n, err := ParseNumber(string(v.Text))
	if err != nil {
		err = Errorf(Malformed, "%s answered %.40q", command[:len(command)-2], v.Text)
	}
	return n, err
}

func (s *isotoneSystem) Close() { s.conns.close() }
