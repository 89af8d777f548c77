package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
)

type statusCmd struct {
	Addrs []string `arg:"" optional:"" name:"addr" help:"The same as --endpoint: host:port, URL or unix:PATH, or a comma-separated list."`

	endpointFlags
	Watch    bool          `name:"watch" short:"w" help:"Repeat until Ctrl-C."`
	Interval time.Duration `name:"interval" default:"1s" help:"Interval of --watch."`
	Timeout  time.Duration `name:"timeout" default:"4s" help:"Maximum time for the command, or for each report of --watch: half of it for the answers of the nodes that are named, half for those of the other members. With --users it is thirds, and the last is for what users have used."`
	Users    bool          `name:"users" help:"Show as well what each user has used of all members together since they started. It takes the role admin at each."`
	JSON     bool          `name:"json" help:"Print one line of JSON with the full state of every member."`

	accessFlags
}

// statusIntervalMin keeps a typing error from loading the cluster.
const statusIntervalMin = 50 * time.Millisecond

// Run shows the members of a cluster. It returns an error, and so exits with code 1, if
// there is no leader, or a member does not answer or is not ready. With --watch it only
// shows these problems.
func (c *statusCmd) Run(ctx context.Context, con console) error {
	c.Addrs = append(c.Addrs, c.Endpoint...)
	reach, err := c.open()
	if err != nil {
		return err
	}
	asked, err := c.survey(reach)
	if err != nil {
		return err
	}
	defer asked.Client.CloseIdleConnections()
	if len(c.Addrs) == 0 {
		addr, err := operator.Find(ctx, reach)
		if err != nil && (!c.Watch || reach.MayGuess() != nil) {
			return fmt.Errorf("%w, as in: isotone status HOST:PORT", err)
		} else if err != nil {
			addr = operator.DefaultAddr // it may come
		}
		if c.Addrs, err = reach.URLs("address", []string{addr}); err != nil {
			return err
		}
	}
	if !c.Watch {
		report, err := c.ask(ctx, reach, asked)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.write(con.out, report); err != nil {
			return err
		}
		return report.Err()
	}
	return c.watch(ctx, con, reach, asked)
}

// watch shows the members again and again, until ctx is done.
func (c *statusCmd) watch(ctx context.Context, con console, reach *operator.Access, asked *survey.Survey) error {
	return watch(ctx, con, c.Interval, c.JSON, func() (time.Time, func(io.Writer) error, error) {
		report, err := c.ask(ctx, reach, asked)
		if err != nil {
			return time.Time{}, nil, err
		}
		return report.At, func(w io.Writer) error { return c.write(w, report) }, nil
	})
}

// watch asks for a report again and again, and shows it as lines of JSON, in place on a terminal, or else in blocks with its time, until ctx is
// done.
func watch(ctx context.Context, con console, interval time.Duration, asJSON bool, ask func() (at time.Time, write func(io.Writer) error, err error)) error {
	screen := &statusScreen{w: con.out, terminal: isTerminal(con.out) && !asJSON}
	defer screen.end()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		at, write, err := ask()
		if ctx.Err() != nil {
			return nil // interrupted: the report is incomplete
		}
		if err != nil {
			return err
		}
		var frame bytes.Buffer
		block := !asJSON && !screen.terminal // has the time above it and a blank line below
		if block {
			fmt.Fprintln(&frame, at.Format(time.RFC3339))
		}
		if err := write(&frame); err != nil {
			return err
		}
		if block {
			frame.WriteByte('\n')
		}
		if err := screen.show(frame.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// survey checks the flags and returns the survey that they describe.
func (c *statusCmd) survey(reach *operator.Access) (*survey.Survey, error) {
	if len(c.Addrs) > 0 {
		var err error
		if c.Addrs, err = reach.URLs("address", strings.Split(strings.Join(c.Addrs, ","), ",")); err != nil {
			return nil, err
		}
	}
	steps := time.Duration(2)
	if c.Users {
		steps++
	}
	return newSurvey(reach, c.Interval, c.Timeout, steps)
}

// newSurvey checks intervals and timeouts, and returns a survey that asks in as many steps.
func newSurvey(reach *operator.Access, interval, timeout, steps time.Duration) (*survey.Survey, error) {
	if interval < statusIntervalMin {
		return nil, usagef("--interval %v: want %v or more", interval, statusIntervalMin)
	}
	if timeout <= 0 {
		return nil, usagef("--timeout %v: want more than 0", timeout)
	}
	return &survey.Survey{Client: reach.HTTPClient(&http.Transport{Proxy: http.ProxyFromEnvironment}), Timeout: timeout / steps}, nil
}

// statusReport is what the command prints.
type statusReport struct {
	*survey.Report
	*userReport // nil without --users
}

// ask asks all members.
func (c *statusCmd) ask(ctx context.Context, reach *operator.Access, asked *survey.Survey) (r statusReport, err error) {
	if r.Report, err = asked.Ask(ctx, c.Addrs); err != nil {
		return r, err
	}
	if c.Users {
		r.userReport = askUsers(ctx, asked, r.Report)
	}
	reach.NameSockets(r.Report)
	return r, nil
}

func (c *statusCmd) write(w io.Writer, r statusReport) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(r)
	}
	if err := survey.WriteTable(w, r.Report); err != nil || r.userReport == nil {
		return err
	}
	return r.userReport.write(w)
}

// statusScreen shows frames one after the other, on a terminal in the same place.
type statusScreen struct {
	w        io.Writer
	terminal bool
	begun    bool
}

// show writes a frame with one call, so that the screen does not flicker.
func (s *statusScreen) show(frame []byte) error {
	var block bytes.Buffer
	if s.terminal {
		if !s.begun {
			block.WriteString("\x1b[2J\x1b[?25l\x1b[?7l") // clear the screen, hide the cursor, truncate long lines
		}
		block.WriteString("\x1b[H")
		block.Write(bytes.ReplaceAll(frame, []byte("\n"), []byte("\x1b[K\n")))
		block.WriteString("\x1b[J")
	} else {
		block.Write(frame)
	}
	s.begun = true
	_, err := block.WriteTo(s.w)
	return err
}

// end restores the terminal.
func (s *statusScreen) end() {
	if s.terminal && s.begun {
		fmt.Fprint(s.w, "\x1b[?7h\x1b[?25h")
	}
}
