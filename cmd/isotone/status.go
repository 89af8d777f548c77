package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/dashboard"
)

type statusCmd struct {
	Addrs []string `arg:"" optional:"" name:"addr" help:"Nodes of one cluster, as host:port or URL, also with commas between them; the other members are found from any of them. Default: localhost:8080."`

	Watch    bool          `name:"watch" short:"w" help:"Ask again and again, until Ctrl-C."`
	Interval time.Duration `name:"interval" default:"1s" help:"With --watch: how often."`
	Timeout  time.Duration `name:"timeout" default:"2s" help:"Longest wait for an answer."`
	JSON     bool          `name:"json" help:"Print one line of JSON with all that the members say of themselves."`
	CA       string        `name:"ca" placeholder:"FILE" help:"PEM file of the certificates that sign those of the nodes."`
	Insecure bool          `name:"insecure" short:"k" help:"Accept any certificate, as the self-signed ones that nodes make."`
}

// statusIntervalMin keeps a typing error from becoming a load.
const statusIntervalMin = 50 * time.Millisecond

// Run shows the members of a cluster. It returns an error, and so ends with exit code 1,
// if there is no leader or a member does not answer or is not ready; with --watch that is
// shown and no failure.
func (c *statusCmd) Run(ctx context.Context, con console) error {
	survey, err := c.survey()
	if err != nil {
		return err
	}
	defer survey.Client.CloseIdleConnections()
	if !c.Watch {
		report, err := survey.Ask(ctx, c.Addrs)
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
	screen := &statusScreen{w: con.out, terminal: isTerminal(con.out) && !c.JSON}
	defer screen.end()
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		report, err := survey.Ask(ctx, c.Addrs)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // asked to end; what came back is of no use
		}
		var frame bytes.Buffer
		block := !c.JSON && !screen.terminal // with the time above it, and apart from the next
		if block {
			fmt.Fprintln(&frame, report.At.Format(time.RFC3339))
		}
		if err := c.write(&frame, report); err != nil {
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

// survey returns how to ask, or what is wrong with the flags.
func (c *statusCmd) survey() (*dashboard.Survey, error) {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"localhost:8080"}
	}
	c.Addrs = strings.Split(strings.Join(c.Addrs, ","), ",")
	for _, addr := range c.Addrs {
		if _, err := dashboard.Address(addr); err != nil {
			return nil, usageError(err.Error())
		}
	}
	if c.Interval < statusIntervalMin {
		return nil, usagef("--interval %v: want %v or more", c.Interval, statusIntervalMin)
	}
	if c.Timeout <= 0 {
		return nil, usagef("--timeout %v: want more than 0", c.Timeout)
	}
	config := &tls.Config{InsecureSkipVerify: c.Insecure}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, usagef("--ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca %s: no certificate in it", c.CA)
		}
	}
	return &dashboard.Survey{
		Client:  &http.Client{Transport: &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}},
		Timeout: c.Timeout,
	}, nil
}

func (c *statusCmd) write(w io.Writer, report *dashboard.Report) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(report)
	}
	return dashboard.WriteTable(w, report)
}

// statusScreen shows one frame after the other: on a terminal in the same place.
type statusScreen struct {
	w        io.Writer
	terminal bool
	begun    bool
}

// show writes a frame in one piece, so that it does not flicker.
func (s *statusScreen) show(frame []byte) error {
	var block bytes.Buffer
	if s.terminal {
		if !s.begun {
			block.WriteString("\x1b[2J\x1b[?25l\x1b[?7l") // clear; no cursor; long lines are cut off
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

// end gives the terminal back as it was.
func (s *statusScreen) end() {
	if s.terminal && s.begun {
		fmt.Fprint(s.w, "\x1b[?7h\x1b[?25h")
	}
}
