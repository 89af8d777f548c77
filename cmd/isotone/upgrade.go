package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/front"
)

// upgradeCmd has the commands that end a rolling upgrade; see docs/operations.md#upgrade.
type upgradeCmd struct {
	Show     upgradeShowCmd     `cmd:"" help:"Show the feature level of the cluster, and whether it can be raised."`
	Finalize upgradeFinalizeCmd `cmd:"" help:"Raise the feature level to the newest that all members support. Older versions cannot be restored after that."`
}

type upgradeShowCmd struct{ operatorFlags }

type upgradeFinalizeCmd struct{ operatorFlags }

// Run shows the levels.
func (c *upgradeShowCmd) Run(ctx context.Context, con console) error {
	var l front.Levels
	if err := c.do(ctx, http.MethodGet, "/upgrade", nil, &l); err != nil {
		return err
	}
	return c.printLevels(con, l)
}

// Run raises the level.
func (c *upgradeFinalizeCmd) Run(ctx context.Context, con console) error {
	var l front.Levels
	if err := c.do(ctx, http.MethodGet, "/upgrade", nil, &l); err != nil {
		return err
	}
	if l.Level < l.Newest {
		if l.Next == l.Level {
			return fmt.Errorf("the cluster stays at feature level %d: node %s runs an older version, or is not connected", l.Level, numbers(l.Missing))
		}
		question := fmt.Sprintf("Raising the feature level from %d to %d locks out versions that do not support it: they cannot be restored.", l.Level, l.Next)
		if err := c.confirm(ctx, con, question); err != nil {
			return err
		}
		if err := c.do(ctx, http.MethodPost, "/upgrade", nil, &l); err != nil {
			return err
		}
	}
	return c.printLevels(con, l)
}

// printLevels writes the levels as text, or with --json as JSON.
func (f *operatorFlags) printLevels(con console, l front.Levels) error {
	return f.print(con, l, func(w io.Writer) { describeLevels(w, l) })
}

func describeLevels(w io.Writer, l front.Levels) {
	fmt.Fprintf(w, "feature level  %d\nnewest         %d\n", l.Level, l.Newest)
	switch {
	case l.Level == l.Newest:
		fmt.Fprintln(w, "finalized      yes")
	case l.Next > l.Level:
		fmt.Fprintf(w, "finalized      no: all members support %d; until then the older version can be restored\n", l.Next)
	default:
		fmt.Fprintf(w, "finalized      no: node %s runs an older version, or is not connected\n", numbers(l.Missing))
	}
}

func numbers(ids []uint64) string { return strings.Trim(fmt.Sprint(ids), "[]") }
