package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/front"
)

// upgradeCmd is for the end of a rolling upgrade; see docs/upgrade.md.
type upgradeCmd struct {
	Show     upgradeShowCmd     `cmd:"" help:"Show the feature level of the cluster, and whether it can be raised."`
	Finalize upgradeFinalizeCmd `cmd:"" help:"Raise the feature level to the newest that all members know. Older versions cannot be put back after that."`
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
		question := fmt.Sprintf("Raising the feature level from %d to %d shuts out versions that do not know it: they cannot be put back.", l.Level, l.Next)
		if err := c.confirm(con, question); err != nil {
			return err
		}
		if err := c.do(ctx, http.MethodPost, "/upgrade", &l); err != nil {
			return err
		}
	}
	return c.print(con, l)
}

// print writes the levels for people, or as JSON.
func (f *operatorFlags) print(con console, l front.Levels) error {
	if f.JSON {
		return json.NewEncoder(con.out).Encode(l)
	}
	fmt.Fprintf(con.out, "feature level  %d\nnewest         %d\n", l.Level, l.Newest)
	switch {
	case l.Level == l.Newest:
		fmt.Fprintln(con.out, "finalized      yes")
	case l.Next > l.Level:
		fmt.Fprintf(con.out, "finalized      no: all members can go to %d; until then the older version can be put back\n", l.Next)
	default:
		fmt.Fprintf(con.out, "finalized      no: node %s runs an older version, or is not connected\n", numbers(l.Missing))
	}
	return nil
}

func numbers(ids []uint64) string { return strings.Trim(fmt.Sprint(ids), "[]") }
