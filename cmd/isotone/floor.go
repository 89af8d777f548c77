package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/admin"
)

// floorCmd has the command that moves timestamps ahead, for migrations from another oracle.
type floorCmd struct {
	Raise floorRaiseCmd `cmd:"" help:"Have all later timestamps be larger than a given one."`
}

type floorRaiseCmd struct {
	operatorFlags
	Timestamp string `arg:"" help:"A timestamp in hexadecimal (32 digits), a time as in 2026-11-22T15:04:05Z, or unix nanoseconds."`
	Force     bool   `name:"force" help:"Permit a floor more than 24 hours ahead of the clock: time stands still until the clock has caught up."`
}

// Run raises the floor.
func (c *floorRaiseCmd) Run(ctx context.Context, con console) error {
	floor, err := parseFloor(c.Timestamp)
	if err != nil {
		return usageError(err.Error())
	}
	when := time.Unix(0, int64(floor)).UTC().Format(time.RFC3339Nano)
	if err := c.confirm(ctx, con, fmt.Sprintf("All later timestamps will be larger than %s. This cannot be undone.", when)); err != nil {
		return err
	}
	answer := admin.Floor{Time: floor, Force: c.Force}
	if err := c.do(ctx, http.MethodPost, "/admin/floor", answer, &answer); err != nil {
		return err
	}
	return c.print(con, answer, func(w io.Writer) { fmt.Fprintf(w, "all later timestamps are larger than %s\n", when) })
}

// timestampDigits is the length of a timestamp in hexadecimal.
const timestampDigits = 32

// parseFloor returns the time of a floor in unix nanoseconds, before the year 2262.
func parseFloor(text string) (uint64, error) {
	if len(text) == timestampDigits {
		t, err := isotone.ParseTimestamp(text)
		if err == nil && int64(t.Time) < 0 {
			err = fmt.Errorf("%q is after the year 2262", text)
		}
		return t.Time, err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return uint64(n), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UnixNano() < 0 || t.Year() > 2261 || t.Year() < 1970 {
		return 0, fmt.Errorf("%q is no timestamp: want 32 hexadecimal digits, a time as in 2026-11-22T15:04:05Z, or unix nanoseconds", text)
	}
	return uint64(t.UnixNano()), nil
}
