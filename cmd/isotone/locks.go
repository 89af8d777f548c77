package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
)

// locksCmd has the commands of operators about locks; see docs/locks.md.
type locksCmd struct {
	List  locksListCmd  `cmd:"" help:"List the locks that are held: by whom, since when, and with which token."`
	Break locksBreakCmd `cmd:"" help:"End the session that holds a lock. The lock is free when its holder cannot believe in it any more."`
}

const locksPath, frontierPath = "/admin/locks", "/admin/frontier"

type locksListCmd struct {
	clusterFlags
	Prefix string `arg:"" optional:"" help:"Only locks whose names begin so."`
}

// Run lists the locks.
func (c *locksListCmd) Run(ctx context.Context, con console) error {
	var l front.LockList
	if err := c.do(ctx, http.MethodGet, locksPath+"?"+url.Values{"prefix": {c.Prefix}}.Encode(), nil, &l); err != nil {
		return err
	}
	return c.print(con, l, func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "NAME\tHOLDER\tSINCE\tTOKEN\tSESSION")
		for _, r := range l.Locks {
			fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%s\n", r.Name, lockHolder(r), r.Since, r.Token64, r.Session)
		}
		_ = t.Flush()
		if l.More {
			fmt.Fprintln(w, "there may be more: name a longer prefix")
		}
	})
}

// lockHolder describes who holds a lock: what it tells others, or else what its client calls its session.
func lockHolder(r front.LockRecord) string {
	if r.Value == "" {
		return fmt.Sprintf("%q", r.Label)
	}
	return fmt.Sprintf("%q", r.Value)
}

type locksBreakCmd struct {
	operatorFlags
	Name  string `arg:"" help:"Name of the lock."`
	Token string `arg:"" help:"Token of its holder, in either form, as locks list shows it. The lock of another holder is never touched."`
}

// Run breaks a lock.
func (c *locksBreakCmd) Run(ctx context.Context, con console) error {
	token, err := parseLockToken(c.Token)
	if err != nil {
		return err
	}
	var l front.LockList
	if err := c.do(ctx, http.MethodGet, locksPath+"?"+url.Values{"prefix": {c.Name}}.Encode(), nil, &l); err != nil {
		return err
	}
	var held *front.LockRecord
	for i := range l.Locks {
		if l.Locks[i].Name == c.Name {
			held = &l.Locks[i]
		}
	}
	switch {
	case held == nil:
		return fmt.Errorf("nobody holds the lock %q; see: isotone locks list", c.Name)
	case held.Token64 != token:
		return fmt.Errorf("the lock %q is held with token %d, by %s, and not with %d", c.Name, held.Token64, lockHolder(*held), token)
	}
	question := fmt.Sprintf("The session %s of %s ends, and all that it holds is lost; its process is told at once, and the lock is free within the TTL of the session.", held.Session, lockHolder(*held))
	if err := c.confirm(ctx, con, question); err != nil {
		return err
	}
	var b front.LockBroken
	if err := c.do(ctx, http.MethodPost, locksPath, admin.LockAction{Action: admin.BreakLock, Name: c.Name, Token: token}, &b); err != nil {
		return err
	}
	return c.print(con, b, func(w io.Writer) {
		left := time.Duration(b.FreeAfter * float64(time.Second))
		fmt.Fprintf(w, "the holder of %q loses the lock, which is free in %v at the latest, if the leader stays\n", b.Name, left.Round(time.Millisecond))
	})
}

// parseLockToken reads a token in either of its forms.
func parseLockToken(text string) (isotone.Timestamp64, error) {
	if len(text) == 32 {
		if t, err := isotone.ParseTimestamp(text); err == nil {
			return isotone.Timestamp64From(t), nil
		}
	}
	token, err := isotone.ParseTimestamp64(text)
	if err != nil || token == 0 {
		return 0, usagef("token %.40q: want 32 hexadecimal digits or a decimal number, as isotone locks list shows it", text)
	}
	return token, nil
}
