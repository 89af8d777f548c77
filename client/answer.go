package client

import (
	"bufio"
	"errors"
	"math"
	"net"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
	"github.com/isotone/isotone/snowflake"
)

// limits bound the answer to a command. Nodes stay far below them.
var limits = reply.Limits{Bytes: 4 << 10, Items: 4 << 10, Depth: 5}

// readAnswer reads the answer to b's request into b. A node's refusal is an *isotone.Error;
// after any other error the connection is unusable.
func readAnswer(r *bufio.Reader, b *batch) error {
	first, err := r.Peek(1)
	switch {
	case err != nil:
		return err
	case first[0] == '-':
		_, err := readReply(r)
		return err
	case b.kind == kindID:
		b.ids, err = readIDs(r, b.count())
		return err
	}
	if b.isOracle {
		b.first, err = readMillis(r)
		return err
	}
	if b.kind.is64() {
		b.first, err = readTimestamp64(r, b.count())
		return err
	}
	if b.first, err = readTimestamp(r); err != nil {
		return err
	}
	if b.count()-1 > math.MaxUint64-b.first.Index {
		return reply.Malformed("%d timestamps from index %d on", b.count(), b.first.Index)
	}
	return nil
}

func readTimestamp(r *bufio.Reader) (isotone.Timestamp, error) {
	for {
		text, _ := r.Peek(min(r.Buffered(), reply.TimestampSize))
		ts, complete, err := reply.ParseTimestamp(text)
		if complete {
			_, err = r.Discard(reply.TimestampSize)
		} else if err == nil {
			_, err = r.Peek(len(text) + 1) // wait for more
		}
		if complete || err != nil {
			return ts, err
		}
	}
}

// readTimestamp64 reads the first of count timestamps of 64 bits, and returns its place in the order of all.
func readTimestamp64(r *bufio.Reader, count uint64) (isotone.Timestamp, error) {
	line, err := reply.Line(r)
	if err != nil {
		return isotone.Timestamp{}, err
	}
	const digitsMax = 20
	n, err := reply.Size(line, digitsMax)
	if err != nil || line[0] != '$' || n < 1 {
		return isotone.Timestamp{}, reply.Malformed("%.40q instead of a timestamp", line)
	}
	if line, err = reply.Line(r); err != nil {
		return isotone.Timestamp{}, err
	}
	first, err := isotone.ParseTimestamp64(string(line))
	last := first + isotone.Timestamp64(count-1) // none is after the year 2553, see isotone.Timestamp64.Timestamp
	if err != nil || len(line) != n || last < first || isotone.Timestamp64From(last.Timestamp()) != last {
		return isotone.Timestamp{}, reply.Malformed("%.40q instead of a timestamp of 64 bits", line)
	}
	return first.Timestamp(), nil
}

func readIDs(r *bufio.Reader, count uint64) ([]snowflake.ID, error) {
	line, err := reply.Line(r)
	if err != nil {
		return nil, err
	}
	if count == 1 && line[0] == ':' {
		id, err := parseID(line)
		return []snowflake.ID{id}, err
	}
	if n, err := reply.Size(line, idBatchMax); err != nil || line[0] != '*' || uint64(n) != count {
		return nil, reply.Malformed("%.40q instead of %d IDs", line, count)
	}
	ids := make([]snowflake.ID, count)
	for i := range ids {
		line, err := reply.Line(r)
		if err != nil {
			return nil, err
		}
		if ids[i], err = parseID(line); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func parseID(line []byte) (snowflake.ID, error) {
	n, err := strconv.ParseUint(string(line[1:]), 10, 63)
	if line[0] != ':' || err != nil {
		return 0, reply.Malformed("%.40q instead of an ID", line)
	}
	return snowflake.ID(n), nil
}

// readReply reads any answer. A node's refusal is an *isotone.Error; after any other error
// the connection is unusable.
func readReply(r *bufio.Reader) (reply.Value, error) {
	v, err := reply.Read(r, limits)
	var refusal reply.Error
	if errors.As(err, &refusal) {
		decoded, err := refusal.Decode()
		if err != nil {
			return v, err
		}
		return v, decoded
	}
	return v, err
}

// checkAddr returns an error unless addr is host:port.
func checkAddr(addr string) error {
	if !reply.ValidAddr(addr) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "address %.100q: want host:port", addr)
	}
	return nil
}

// viewOf reads the answer to CLUSTER SLOTS: ranges of slots and their nodes, the leader
// first. Isotone has one shard, so the first range gives the leader. A node without a host
// is the one that was asked.
func viewOf(v reply.Value, asked string) (search.View, error) {
	var seen search.View
	for _, slots := range v.Items {
		if len(slots.Items) < 3 {
			return search.View{}, reply.Malformed("slots without a node")
		}
		for i, node := range slots.Items[2:] {
			if len(node.Items) < 2 || node.Items[1].Kind != ':' {
				return search.View{}, reply.Malformed("a node without a port")
			}
			host := string(node.Items[0].Text)
			if host == "" || host == "?" {
				host, _, _ = net.SplitHostPort(asked)
			}
			addr := reply.JoinAddr(host, strconv.FormatInt(node.Items[1].Int, 10))
			if !reply.ValidAddr(addr) || len(seen.Members) == search.MembersMax {
				return search.View{}, reply.Malformed("a node at %.100q, or too many", addr)
			}
			if i == 0 && seen.Leader == "" {
				seen.Leader = addr
			}
			seen.Members = append(seen.Members, addr)
		}
	}
	if seen.Leader == "" {
		return search.View{}, reply.Malformed("no node has slots")
	}
	return seen, nil
}
