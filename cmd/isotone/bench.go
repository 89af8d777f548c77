package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
)

type benchCmd struct {
	Files []string `arg:"" optional:"" name:"file" complete:"files" help:"With --compare: two files written by --json."`

	Target      []string      `name:"target" short:"t" placeholder:"HOST:PORT" help:"Nodes of one cluster, as host:port or URL; the leader is found through any of them. Default: 127.0.0.1:8080 or, if no node answers there, one of \"isotone dev\" at ports 8081 to 8083."`
	Endpoint    endpointList  `name:"endpoint" placeholder:"HOST:PORT,..." help:"The same as --target, by the name that other commands use."`
	Protocol    string        `name:"protocol" short:"p" default:"http1" complete:"http1,resp,h2c,h2,h3" help:"http1, resp (the protocol of Redis), h2c (HTTP/2), h2 (HTTP/2 with TLS) or h3 (HTTP/3). An https URL gives http1 TLS."`
	Connections int           `name:"connections" short:"c" default:"64" help:"Number of open connections."`
	Pipeline    int           `name:"pipeline" short:"P" default:"1" help:"Concurrent requests on each connection: pipelined, or streams of HTTP/2 and HTTP/3."`
	Rate        float64       `name:"rate" short:"r" placeholder:"N" help:"Open loop: arrivals per second, evenly spaced, whether or not earlier requests were answered. Default: closed loop, as fast as answers come."`
	Count       uint64        `name:"count" short:"n" default:"1" help:"Timestamps per request."`
	Mode        string        `name:"mode" short:"m" placeholder:"MODE" complete:"quorum,lease" help:"quorum or lease. Default: the READ_MODE of the node."`
	Timeline    *string       `name:"timeline" placeholder:"NAME" help:"Timeline to ask. Default: the default order."`
	Duration    time.Duration `name:"duration" short:"d" help:"Length of the run. Default: 10s, or until --requests are done."`
	Requests    uint64        `name:"requests" placeholder:"N" help:"Stop after this many requests."`
	Warmup      time.Duration `name:"warmup" help:"Load for this long before measuring. Answers are checked all the same."`
	Timeout     time.Duration `name:"timeout" default:"2s" help:"Maximum wait for an answer or a connection; after that the connection is closed."`
	Backlog     int           `name:"backlog" default:"1048576" help:"Open loop: maximum number of arrivals that wait for a free connection; further ones count as errors."`
	Threads     int           `name:"threads" placeholder:"N" help:"Threads that run at the same time. Default: half of the CPUs, 1 to 4."`

	accessFlags

	JSON       string `name:"json" placeholder:"FILE" complete:"files" help:"Write all results as JSON. - is standard output."`
	HTML       string `name:"html" placeholder:"FILE" complete:"files" help:"Write a report with plots as one self-contained HTML file."`
	Violations string `name:"violations" default:"isotone-violations.jsonl" placeholder:"FILE" complete:"files" help:"File for the operations that violate the order, if any. Default: ${default}."`
	Compare    bool   `name:"compare" help:"Compare two results instead of loading: isotone bench --compare a.json b.json."`

	Interval   bool `name:"interval" help:"Measure and check the cluster clock instead, in several processes: widths, commit waits, timestamps a second. See docs/bench.md."`
	Processes  int  `name:"processes" default:"2" help:"With --interval: number of processes."`
	Generators int  `name:"generators" default:"2" help:"With --interval: goroutines in each process, with a generator of timestamps each."`

	IntervalProcess bool `name:"interval-process" hidden:"" help:"Be one of the processes of --interval."`

	Static string `name:"static" hidden:"" help:"Load any HTTP server with this path, to measure the load generator itself."`
}

// benchDuration is the length of a run without --duration and --requests.
const benchDuration = 10 * time.Second

// benchThreads is the default of --threads: half of the CPUs, because the nodes often
// share the machine, and no more than saturate any node.
func benchThreads() int { return max(1, min(4, runtime.NumCPU()/2)) }

// Run loads a cluster or compares two results.
func (c *benchCmd) Run(ctx context.Context, con console) error {
	if c.Compare || len(c.Files) > 0 {
		return c.compare(con)
	}
	reach, err := c.open()
	if err != nil {
		return err
	}
	if c.IntervalProcess {
		return c.intervalProcess(ctx, con, reach)
	}
	onlyEndpoints := len(c.Target) == 0 && len(c.Endpoint) > 0
	c.Target = append(c.Target, c.Endpoint...)
	o, err := c.options(reach)
	if err != nil && onlyEndpoints { // name the flag that was given
		return usageError(strings.ReplaceAll(err.Error(), "--target", "--endpoint"))
	} else if err != nil {
		return err
	}
	files, err := c.create()
	if err != nil {
		return err
	}
	defer files.discard()
	if len(c.Target) == 0 && c.Static == "" {
		addr, err := operator.FindNode(ctx, reach, operator.LikelyNodes(o.Targets[0]))
		if err != nil {
			return usagef("%v, as in: isotone bench --target HOST:PORT", err)
		}
		o.Targets = schemes(reach, []string{addr}, c.Protocol)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.Threads))
	if c.Interval {
		return c.runInterval(ctx, con, o, files)
	}
	progress := newBenchProgress(con.err, o)
	o.Progress, o.Elsewhere = progress.show, progress.elsewhere
	result, err := bench.Run(ctx, *o)
	progress.end()
	if err != nil && (result == nil || result.Verdict.Checked == 0) {
		return notMeasured(ctx, c.Target, err)
	}
	result.Isotone = version
	return c.report(con, files, result, result.Verdict.Judgement, "this oracle broke its promise", err)
}

// notMeasured says why there is no result.
func notMeasured(ctx context.Context, targets []string, err error) error {
	for _, target := range targets {
		_, addr, named := strings.Cut(target, "://")
		if !named {
			addr = target
		}
		if errors.As(err, new(bench.TargetError)) && operator.IsPeerPort(ctx, strings.TrimSuffix(addr, "/")) {
			return usagef("%s: %v", addr, survey.ErrPeerPort)
		}
	}
	switch {
	case ctx.Err() != nil:
		return usagef("interrupted before there was an answer")
	case errors.As(err, new(bench.TargetError)) || errors.As(err, new(bench.Faults)):
		return usageError(err.Error())
	}
	return err
}

// summarized is a result of any kind.
type summarized interface{ WriteSummary(io.Writer) error }

// report writes a result. Its error is err, and says what a violation means.
func (c *benchCmd) report(con console, files *benchFiles, result summarized, v bench.Judgement, meaning string, err error) error {
	summary := con.out
	if c.JSON == "-" {
		summary = con.err
	}
	page, _ := result.(*bench.Result) // without one, --html is refused
	err = errors.Join(err, result.WriteSummary(summary), files.write(con.out, result, page))
	if err == nil && !v.OK {
		err = fmt.Errorf("%d violations: %s; the records are in %s; the first: %s", v.Violations, meaning, v.File, v.First)
	}
	return err
}

// options returns the options that the flags set, or an error that lists every fault.
func (c *benchCmd) options(reach *operator.Access) (*bench.Options, error) {
	var faults bench.Faults
	o := bench.Default()
	if len(c.Target) > 0 {
		o.Targets = schemes(reach, c.Target, c.Protocol)
	}
	o.Protocol = c.Protocol
	o.Connections, o.Pipeline, o.Rate, o.Count = c.Connections, c.Pipeline, c.Rate, c.Count
	o.Duration, o.Requests, o.Warmup, o.Timeout = c.Duration, c.Requests, c.Warmup, c.Timeout
	o.Backlog, o.Threads, o.TLS, o.Static = c.Backlog, c.Threads, reach.TLS, c.Static
	o.Violations = c.Violations
	if c.Duration == 0 && c.Requests == 0 {
		o.Duration = benchDuration
	}
	if c.Threads == 0 {
		o.Threads = benchThreads()
	}
	if c.Mode != "" {
		var err error
		if o.Mode, err = isotone.ParseReadMode(c.Mode); err != nil {
			faults = append(faults, fmt.Sprintf("--mode %q: want quorum or lease", c.Mode))
		}
	}
	if c.Timeline != nil {
		if o.Timeline = *c.Timeline; o.Timeline == "" {
			faults = append(faults, "--timeline: want a name")
		}
	}
	if reach.Secure && namesHTTP(c.Target) {
		faults = append(faults, "--target: want https, as --ca, --cert and --server-name have no effect without TLS")
	}
	if reach.Credentials != nil {
		known, err := reach.Credentials()
		if err != nil {
			return nil, usageError(err.Error())
		}
		o.User, o.Secret = known.Name, known.Secret
	}
	var more bench.Faults
	err := o.Validate()
	if c.Interval {
		faults = append(faults, c.withoutInterval()...)
		err = c.intervalOptions(&o).Validate()
	}
	if errors.As(err, &more) {
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, usageError(faults.Error())
	}
	return &o, nil
}

// schemes adds https to the targets that have no scheme, if the flags imply it.
func schemes(a *operator.Access, targets []string, protocol string) []string {
	targets = slices.Clone(targets)
	for i, t := range targets {
		if a.Secure && protocol != "h2c" && !strings.Contains(t, "://") {
			targets[i] = "https://" + t
		}
	}
	return targets
}

// namesHTTP reports whether an operator asks for HTTP without TLS.
func namesHTTP(targets []string) bool {
	return slices.ContainsFunc(targets, func(t string) bool { return strings.HasPrefix(strings.ToLower(t), "http://") })
}

// benchFiles are the reports to write.
type benchFiles struct {
	json, html *reportFile
	stdout     bool // has the JSON
}

// create opens the files.
func (c *benchCmd) create() (f *benchFiles, err error) {
	f = &benchFiles{stdout: c.JSON == "-"}
	if !f.stdout {
		if f.json, err = openReport("--json", c.JSON); err != nil {
			return nil, err
		}
	}
	if f.html, err = openReport("--html", c.HTML); err != nil {
		f.discard()
		return nil, err
	}
	return f, nil
}

// write writes the requested reports: the JSON of a result, and the page of one or two of the usual kind.
func (f *benchFiles) write(out io.Writer, result any, pages ...*bench.Result) error {
	write := func(w io.Writer) error { return bench.WriteJSON(w, result) }
	page := func(w io.Writer) error { return bench.WriteHTML(w, pages...) }
	if f.stdout {
		return errors.Join(write(out), f.html.write(page))
	}
	return errors.Join(f.json.write(write), f.html.write(page))
}

// discard closes the files that were not written, and removes those that are new.
func (f *benchFiles) discard() {
	f.json.discard()
	f.html.discard()
}

// compare prints two results side by side.
func (c *benchCmd) compare(con console) error {
	if !c.Compare || len(c.Files) != 2 || c.JSON != "" {
		return usagef("want --compare with exactly two files written by --json (and optionally --html FILE): isotone bench --compare a.json b.json")
	}
	a, err := bench.ReadResult(c.Files[0])
	if err != nil {
		return usageError(err.Error())
	}
	b, err := bench.ReadResult(c.Files[1])
	if err != nil {
		return usageError(err.Error())
	}
	files, err := c.create()
	if err != nil {
		return err
	}
	return errors.Join(bench.WriteComparison(con.out, a, b), files.write(con.out, nil, a, b))
}
