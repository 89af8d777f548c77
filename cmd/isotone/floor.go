package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
)

// floorCmd has the command that moves timestamps ahead, for migrations from another oracle.
type floorCmd struct {
	Raise floorRaiseCmd `cmd:"" help:"Have all later timestamps be larger than a given one."`
}

type floorRaiseCmd struct {
	operatorFlags
	Timestamp string `arg:"" help:"A timestamp as it is printed: 32 hexadecimal digits, or 64 bits in decimal; or TIME:INDEX, a time as in 2026-11-22T15:04:05Z, or unix nanoseconds."`
	Force     bool   `name:"force" help:"Permit a floor more than 24 hours ahead of the clock: time stands still until the clock has caught up."`
}

// Run raises the floor.
func (c *floorRaiseCmd) Run(ctx context.Context, con console) error {
	floor, err := parseFloor(c.Timestamp, time.Now())
	if err != nil {
		return err
	}
	when := nanoTime(floor.Time)
	if err := c.confirm(ctx, con, fmt.Sprintf("All later timestamps will be larger than %s, as which %q is read (%s). This cannot be undone.", when, c.Timestamp, floor.Form)); err != nil {
		return err
	}
	var a front.FloorRaised
	if err := c.do(ctx, http.MethodPost, "/admin/floor", admin.Floor{Time: strconv.FormatUint(floor.Time, 10), Force: c.Force}, &a); err != nil {
		return spelledAsFlags(err)
	}
	return c.print(con, a, func(w io.Writer) {
		fmt.Fprintf(w, "all later timestamps are larger than %s\n", when)
		switch {
		case a.Raised:
			fmt.Fprintf(w, "raised from %s to %s\n", nanoTime(a.Before), nanoTime(a.After))
		case a.Before != 0: // older versions do not say
			fmt.Fprintf(w, "nothing was raised: the cluster was at %s already\n", nanoTime(a.Before))
		}
	})
}

// spelledAsFlags has a refusal name the flag, not the field of the request.
func spelledAsFlags(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "use force", "use --force"))
}

// parseFloor parses a floor on a command line.
func parseFloor(text string, now time.Time) (oracle.Floor, error) {
	f, err := oracle.ParseFloor(text, uint64(max(0, now.UnixNano())))
	if err != nil {
		return f, usageError(err.Error())
	}
	return f, nil
}
