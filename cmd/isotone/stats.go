package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
)

type statsCmd struct {
	Files []string `arg:"" optional:"" name:"FILE" complete:"files" help:"One or more logs of nodes and proxies that run with --request-stats, or of proxies with --log-requests, as JSON; - is standard input. Requests that are in several of them are compared."`

	Top   int    `name:"top" default:"10" help:"How many of the slowest requests to show."`
	By    string `name:"by" placeholder:"path|code|protocol" complete:"path,code,protocol" help:"Also group the requests by path, code or protocol."`
	Cores *int   `name:"cores" placeholder:"N" help:"The number of cores to compute workers for. Default: those of this machine."`
	JSON  bool   `name:"json" help:"Print all of it as JSON."`
	HTML  string `name:"html" placeholder:"FILE" complete:"files" help:"Also write a page with charts, as one self-contained HTML file."`
}

// statsNothing is the error for a log without requests.
const statsNothing = "no line about a request in %d lines; was the log written with --request-stats (REQUEST_STATS=1), or --log-requests of a proxy, and without PRETTY?"

// Run evaluates logs.
func (c *statsCmd) Run(ctx context.Context, con console) error {
	if len(c.Files) == 0 {
		return usagef("which log? Want isotone stats FILE…; - is standard input")
	}
	options := stats.ReadOptions{Top: c.Top, By: c.By, Cores: runtime.NumCPU()}
	if c.Cores != nil {
		if options.Cores = *c.Cores; options.Cores < 1 {
			return usagef("--cores %d: want 1 or more", options.Cores)
		}
	}
	if err := options.Validate(len(c.Files)); err != nil {
		return usageError(err.Error())
	}
	sources, size, closeAll, err := openLogs(c.Files)
	if err != nil {
		return err
	}
	defer closeAll()
	page, err := openReport("--html", c.HTML)
	if err != nil {
		return err
	}
	defer page.discard()
	progress := newReadProgress(con.err, size)
	options.Progress = progress.show
	report, err := stats.Read(ctx, sources, options)
	progress.end()
	if err != nil {
		return err
	}
	if report.Total.Requests == 0 {
		lines := uint64(0)
		for _, f := range report.Files {
			lines += f.Lines
			for _, b := range f.FirstBroken {
				fmt.Fprintf(con.err, "%s:%d: %s\n", f.Name, b.Line, b.Why)
			}
		}
		return fmt.Errorf(statsNothing, lines)
	}
	if err := page.write(report.WriteHTML); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(con.out).Encode(report)
	}
	return report.WriteText(con.out)
}

// openLogs opens files, and returns their total size in bytes, or 0 if it is not known.
func openLogs(names []string) (sources []stats.Source, size int64, closeAll func(), err error) {
	var open []*os.File
	closeAll = func() {
		for _, f := range open {
			_ = f.Close()
		}
	}
	known := true
	for i, name := range names {
		for _, other := range names[:i] {
			if other == name {
				closeAll()
				return nil, 0, nil, usagef("%s: named twice", name)
			}
		}
		if name == "-" {
			sources, known = append(sources, stats.Source{Name: "stdin", Reader: os.Stdin}), false
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, 0, nil, usageError(err.Error())
		}
		open = append(open, f)
		if info, err := f.Stat(); err == nil && info.IsDir() {
			closeAll()
			return nil, 0, nil, usagef("%s: is a directory", name)
		} else if err != nil || !info.Mode().IsRegular() {
			known = false
		} else {
			size += info.Size()
		}
		sources = append(sources, stats.Source{Name: name, Reader: f})
	}
	if !known {
		size = 0
	}
	return sources, size, closeAll, nil
}

// readProgress shows the progress of reading a long log: on a terminal every second,
// otherwise every ten seconds.
type readProgress struct {
	w        io.Writer
	terminal bool
	size     int64
	next     time.Time
	written  bool
}

func newReadProgress(w io.Writer, size int64) *readProgress {
	p := &readProgress{w: w, terminal: isTerminal(w), size: size}
	p.next = time.Now().Add(p.every())
	return p
}

func (p *readProgress) every() time.Duration {
	if p.terminal {
		return time.Second
	}
	return progressLogEvery
}

// show implements stats.ReadOptions.Progress.
func (p *readProgress) show(bytes int64, requests uint64) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(p.every())
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
		p.written = true
	}
	share := ""
	if p.size > 0 {
		share = fmt.Sprintf(" of %d MB, %d %%", p.size>>20, 100*bytes/p.size)
	}
	fmt.Fprintf(p.w, "%sread %d MB%s, %d requests%s", begin, bytes>>20, share, requests, end)
}

// end clears the line.
func (p *readProgress) end() {
	if p.written {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
