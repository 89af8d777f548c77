package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/front"
)

// upgradeCmd has the commands that end a rolling upgrade; see docs/upgrade.md.
type upgradeCmd struct {
	Show     upgradeShowCmd     `cmd:"" help:"Show the feature level of the cluster, and whether it can be raised."`
	Finalize upgradeFinalizeCmd `cmd:"" help:"Raise the feature level to the newest that all members support. Older versions cannot be restored after that."`
}

type upgradeShowCmd struct{ operatorFlags }

type upgradeFinalizeCmd struct{ operatorFlags }

// Run shows the levels.
func (c *upgradeShowCmd) Run(ctx context.Context, con console) error {
	var l front.Levels
	if err := c.do(ctx, http.MethodGet, "/upgrade", &l); err != nil {
		return err
	}
	return c.print(con, l)
}

// Run raises the level.
func (c *upgradeFinalizeCmd) Run(ctx context.Context, con console) error {
	var l front.Levels
	if err := c.do(ctx, http.MethodGet, "/upgrade", &l); err != nil {
		return err
	}
	if l.Level < l.Newest {
		if l.Next == l.Level {
			return fmt.Errorf("the cluster stays at feature level %d: node %s runs an older version, or is not connected", l.Level, numbers(l.Missing))
		}
		question := fmt.Sprintf("Raising the feature level from %d to %d locks out versions that do not support it: they cannot be restored.", l.Level, l.Next)
		if err := c.confirm(con, question); err != nil {
			return err
		}
		if err := c.do(ctx, http.MethodPost, "/upgrade", &l); err != nil {
			return err
		}
	}
	return c.print(con, l)
}

// print writes the levels as text, or with --json as JSON.
func (f *operatorFlags) print(con console, l front.Levels) error {
	if f.JSON {
		return json.NewEncoder(con.out).Encode(l)
	}
	fmt.Fprintf(con.out, "feature level  %d\nnewest         %d\n", l.Level, l.Newest)
	switch {
	case l.Level == l.Newest:
		fmt.Fprintln(con.out, "finalized      yes")
	case l.Next > l.Level:
		fmt.Fprintf(con.out, "finalized      no: all members support %d; until then the older version can be restored\n", l.Next)
	default:
		fmt.Fprintf(con.out, "finalized      no: node %s runs an older version, or is not connected\n", numbers(l.Missing))
	}
	return nil
}

func numbers(ids []uint64) string { return strings.Trim(fmt.Sprint(ids), "[]") }
