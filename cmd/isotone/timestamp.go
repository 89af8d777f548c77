package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/snowflake"
)

// timestampCmd prints timestamps, for scripts and for people.
type timestampCmd struct {
	askFlags
	Format string `name:"format" short:"f" default:"hex" complete:"hex,u64,json" help:"hex (32 digits), u64 (64-bit timestamps in decimal), a line each, or json."`
	Mode   string `name:"mode" short:"m" placeholder:"MODE" complete:"quorum,lease" help:"quorum or lease. Default: the READ_MODE of the node."`
	// Timeline is a pointer: an empty name, as of a variable that is not set, must not stand for the default order.
	Timeline *string `name:"timeline" placeholder:"NAME" help:"Timeline to ask. Default: the default order."`
}

// Run asks the leader.
func (c *timestampCmd) Run(ctx context.Context, con console) error {
	query := fmt.Sprintf("?n=%d", c.Count)
	size, write := isotone.TimestampSize, hex.AppendEncode
	switch format, err := c.format(c.Format, "hex", "u64", "json"); {
	case err != nil:
		return err
	case format == "json":
		query, write = query+"&format=json", nil
	case format == "u64":
		query += "&format=u64"
		size, write = isotone.Timestamp64Size, func(b, t []byte) []byte { return strconv.AppendUint(b, binary.BigEndian.Uint64(t), 10) }
	}
	switch c.Mode {
	case "":
	case "quorum", "lease":
		query += "&mode=" + c.Mode
	default:
		return usagef("--mode %.40q: want quorum or lease", c.Mode)
	}
	if c.Timeline != nil {
		query += "&timeline=" + url.QueryEscape(*c.Timeline)
	}
	answer, err := c.ask(ctx, "/timestamp"+query, func(answer []byte) bool {
		return write == nil && json.Valid(answer) || write != nil && len(answer) == size*c.Count
	})
	if err != nil {
		return err
	}
	if write == nil {
		return printText(con.out, string(answer)+"\n")
	}
	var lines []byte
	for t := range slices.Chunk(answer, size) {
		lines = append(write(lines, t), '\n')
	}
	return printText(con.out, string(lines))
}

// idCmd prints IDs.
type idCmd struct {
	askFlags
	Format string `name:"format" short:"f" default:"decimal" complete:"decimal,json" help:"decimal, a line each, or json."`
}

// Run asks a node.
func (c *idCmd) Run(ctx context.Context, con console) error {
	query := fmt.Sprintf("?n=%d", c.Count)
	format, err := c.format(c.Format, "decimal", "json")
	if err != nil {
		return err
	}
	if format == "json" {
		query += "&format=json"
	}
	answer, err := c.ask(ctx, httpapi.IDsPath+query, func(answer []byte) bool {
		return format == "json" && json.Valid(answer) || format != "json" && areIDs(answer, c.Count)
	})
	if err != nil {
		return err
	}
	return printText(con.out, string(bytes.TrimRight(answer, "\n"))+"\n")
}

// areIDs reports whether an answer is count IDs in decimal, a line each.
func areIDs(answer []byte, count int) bool {
	lines := bytes.Fields(answer)
	return len(lines) == count && !slices.ContainsFunc(lines, func(line []byte) bool {
		_, err := snowflake.Parse(string(line))
		return err != nil
	})
}

// askFlags are the flags of commands that ask what clients ask.
type askFlags struct {
	clusterFlags
	Count int `name:"count" short:"n" default:"1" help:"How many, 1 to 65536."`
}

// format checks --count, --format and --json, and returns the format that they ask for. The first of known is the default.
func (f *askFlags) format(named string, known ...string) (string, error) {
	switch {
	case f.Count < 1 || f.Count > httpapi.CountMax:
		return "", usagef("--count %d: want 1 to %d", f.Count, httpapi.CountMax)
	case !slices.Contains(known, named):
		return "", usagef("--format %.40q: want %s or %s", named, strings.Join(known[:len(known)-1], ", "), known[len(known)-1])
	case f.JSON && named != known[0] && named != "json":
		return "", usagef("--json and --format %s exclude each other", named)
	case f.JSON:
		return "json", nil
	}
	return named, nil
}

// ask sends a request to the leader or, if it is one that any node answers, to the first node.
// What is no such answer comes from another server.
func (f *askFlags) ask(ctx context.Context, path string, isAnswer func([]byte) bool) ([]byte, error) {
	c, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Checked(ctx, http.MethodGet, path, nil, func(answer []byte) error {
		if !isAnswer(answer) {
			return fmt.Errorf("the answer, of %d bytes, is not what a node answers: is this a node?", len(answer))
		}
		return nil
	})
}
