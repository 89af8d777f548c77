package client_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
)

// fakeLine is a timeline of the fake cluster.
type fakeLine struct {
	owner  int // an index of nodes; -1: nobody
	sealed bool
	last   isotone.Timestamp
	ms     uint64 // of its oracle of reads and writes
}

// create makes timelines that a node owns.
func (c *cluster) create(owner int, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		c.lines = map[string]*fakeLine{}
	}
	for _, name := range names {
		c.lines[name] = &fakeLine{owner: owner, last: isotone.Timestamp{Time: 1}}
	}
}

// grant gives timelines to a node.
func (c *cluster) grant(owner int, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		c.lines[name].owner = owner
	}
}

// timeline answers TS with a timeline, whose option is the one at a place of args.
func (c *cluster) timeline(index int, args []string, at int) []byte {
	name := args[at+1]
	line := c.lines[name]
	if fault := c.refuseLine(index, name, line); fault != nil {
		return fault
	}
	count, _ := strconv.ParseUint(args[1], 10, 64)
	for i := 2; i+1 < len(args); i++ {
		if floor, err := isotone.ParseTimestamp(args[i+1]); args[i] == "FLOOR" && err == nil && line.last.Before(floor) {
			line.last = floor
		}
	}
	first := isotone.Timestamp{Time: line.last.Time, Index: line.last.Index + 1}
	if args[0] == "TS64" {
		short := isotone.Timestamp64From(first)
		line.last = (short + isotone.Timestamp64(count-1)).Timestamp()
		return fmt.Appendf(nil, "$%d\r\n%v\r\n", len(short.String()), short)
	}
	line.last = isotone.Timestamp{Time: first.Time, Index: first.Index + count - 1}
	return stamp(first)
}

// oracle answers ORACLE: each time is one larger than the one before, or that to apply.
func (c *cluster) oracle(index int, args []string) []byte {
	line := c.lines[args[1]]
	if fault := c.refuseLine(index, args[1], line); fault != nil {
		if strings.HasPrefix(args[1], "apart") { // in another group than that of its slot
			return bytes.Replace(fault, []byte("MOVED"), []byte("ASK"), 1)
		}
		return fault
	}
	if line.ms++; args[2] == "APPLY" {
		line.ms, _ = strconv.ParseUint(args[3], 10, 64)
	}
	return fmt.Appendf(nil, ":%d\r\n", line.ms)
}

// refuseLine returns why a node does not answer for a timeline, or nil.
func (c *cluster) refuseLine(index int, name string, line *fakeLine) []byte {
	switch {
	case line == nil && index == c.leader:
		return fmt.Appendf(nil, "-ERR not_found: there is no timeline %q; create it\r\n", name)
	case line == nil:
		return c.refuse(index)
	case line.owner < 0:
		return []byte("-CLUSTERDOWN no leader is known\r\n")
	case line.owner != index:
		return []byte("-MOVED 0 " + c.nodes[line.owner].addr + "\r\n")
	case line.sealed:
		return fmt.Appendf(nil, "-ERR not_found: the timeline %q is sealed\r\n", name)
	}
	return nil
}
