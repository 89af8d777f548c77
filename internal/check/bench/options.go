package bench

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// The limits of a load (I7).
const (
	// connectionsMax is near the number of local ports of one address.
	connectionsMax = 60_000
	// pipelineMax bounds requests under way on a connection. Their answers must fit in
	// the kernel's buffers, or both sides would wait for each other to read.
	pipelineMax = 1024
	// streamsMax is pipelineMax for HTTP/2 and HTTP/3: what nodes allow by default.
	streamsMax = 256
	// rateMax is more than the pacer can release.
	rateMax = 10_000_000
	// timeoutMax and durationMax keep all times within the range of the histogram
	// and of the intervals.
	timeoutMax  = time.Hour
	durationMax = 30 * 24 * time.Hour
	// backlogMax bounds the memory for waiting arrivals, 8 bytes each.
	backlogMax = 1 << 27
	// targetsMax bounds the addresses that a run knows, including those of members.
	targetsMax = 64
	threadsMax = 1024
)

// Options describe a load. Start from [Default]; the zero value is not valid.
type Options struct {
	// Targets are nodes of one cluster, as host:port or URL; one reachable node is enough.
	Targets []string
	// Protocol is "http1", "resp", "h2c", "h2" or "h3".
	Protocol string
	// Connections is the number of connections, Pipeline the largest number of requests
	// under way on each.
	Connections, Pipeline int
	// Rate is the number of arrivals per second of an open loop; 0 is a closed loop.
	Rate float64
	// Count is the number of timestamps per request.
	Count uint64
	// Mode is the read mode; isotone.ReadDefault leaves it to the node.
	Mode isotone.ReadMode
	// Timeline is the timeline to ask; "" is the default order.
	Timeline string
	// Duration bounds the load, not counting the warm-up. 0 means no bound; then Requests
	// must be set.
	Duration time.Duration
	// Requests bounds the requests (closed loop) or arrivals (open loop) after the
	// warm-up. 0 means no bound.
	Requests uint64
	// Warmup is the time before answers count. They are checked from the beginning.
	Warmup time.Duration
	// Timeout bounds the wait for an answer, and for a connection.
	Timeout time.Duration
	// Backlog bounds the number of arrivals that wait for a free connection.
	Backlog int
	// Window is the window of the online checker; 0 means lincheck.WindowDefault.
	Window int
	// Threads is the value of GOMAXPROCS, for the report.
	Threads int
	// TLS is for targets with https; nil means the defaults of crypto/tls.
	TLS *tls.Config
	// User and Secret authenticate every connection, unless User is "". Without TLS they are sent
	// to this machine only.
	User, Secret string
	// Static, if not "", is the path of a file on any HTTP server, requested instead of
	// timestamps to measure the cost of the load generator itself. The run is otherwise the
	// same, but with made-up timestamps.
	Static string
	// readings: the load is readings of the cluster clock, see [LoadReadings].
	readings bool
	// Violations is the file for offending operations, created at the first.
	Violations string
	// Progress, if not nil, is called about once a second, and must return quickly.
	Progress func(Progress)
	// Elsewhere, if not nil, is called from the same goroutine with the address of the
	// leader when that is not one of Targets, and again when it changes.
	Elsewhere func(addr string)
}

// Default returns a closed loop of 64 connections for ten seconds.
func Default() Options {
	return Options{
		Targets:     []string{"127.0.0.1:8080"},
		Protocol:    "http1",
		Connections: 64,
		Pipeline:    1,
		Count:       1,
		Duration:    10 * time.Second,
		Timeout:     2 * time.Second,
		Backlog:     1 << 20,
		Threads:     runtime.GOMAXPROCS(0),
		Violations:  "isotone-violations.jsonl",
	}
}

// Faults lists what is wrong with options.
type Faults []string

// Error returns all faults in one line.
func (f Faults) Error() string { return "bad settings: " + strings.Join(f, "; ") }

func (f *Faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *Faults) number(flag string, value, low, high int64) {
	if value < low || value > high {
		f.add("--%s %d: want %d to %d", flag, value, low, high)
	}
}

func (f *Faults) time(flag string, value, low, high time.Duration) {
	if value < low || value > high {
		f.add("--%s %v: want %v to %v", flag, value, low, high)
	}
}

// Validate returns nil, or a [Faults] with everything that is wrong. It changes nothing
// and uses neither disk nor network.
func (o *Options) Validate() error {
	var f Faults
	pipelineLimit := int64(streamsMax)
	switch o.Protocol {
	case "http1", "resp":
		pipelineLimit = pipelineMax
	case "h2c", "h2", "h3":
	default:
		f.add("--protocol %q: want http1, resp, h2c, h2 or h3", o.Protocol)
	}
	if o.Static != "" && o.Protocol != "http1" {
		f.add("--static: want --protocol http1")
	}
	if len(o.Targets) == 0 || len(o.Targets) > targetsMax {
		f.add("--target: want 1 to %d targets, got %d", targetsMax, len(o.Targets))
	}
	secure := 0
	for _, text := range o.Targets {
		t, err := parseTarget(text, o.Protocol)
		if err != nil {
			f.add("--target %q: %v", text, err)
		}
		if t.secure {
			secure++
		}
	}
	if secure != 0 && secure != len(o.Targets) {
		f.add("--target: want all targets with http, or all with https")
	}
	f.number("connections", int64(o.Connections), 1, connectionsMax)
	f.number("pipeline", int64(o.Pipeline), 1, pipelineLimit)
	f.number("backlog", int64(o.Backlog), 1, backlogMax)
	f.number("threads", int64(o.Threads), 1, threadsMax)
	if !(o.Rate >= 0 && o.Rate <= rateMax) || o.Rate > 0 && o.Rate < 1e-3 {
		f.add("--rate %v: want 0.001 to %d arrivals a second, or 0 for a closed loop", o.Rate, rateMax)
	}
	if o.Count < 1 || o.Count > isotone.RangeCountMax {
		f.add("--count %d: want 1 to %d", o.Count, uint64(isotone.RangeCountMax))
	}
	if o.Static != "" && (o.Static[0] != '/' || o.Count != 1 || len(o.Targets) > 1) {
		f.add("--static %q: want a path that begins with /, --count 1 and one --target", o.Static)
	}
	if o.Duration == 0 && o.Requests == 0 {
		f.add("--duration 0s: want a duration, or --requests")
	}
	if o.Requests > 1<<62 {
		f.add("--requests %d: want at most %d", o.Requests, uint64(1<<62))
	}
	f.time("duration", o.Duration, 0, durationMax)
	f.time("warmup", o.Warmup, 0, durationMax)
	f.time("timeout", o.Timeout, time.Millisecond, timeoutMax)
	if len(f) > 0 {
		return f
	}
	return nil
}

// target is one parsed target.
type target struct {
	addr   string // host:port
	secure bool   // TLS
}

// parseTarget parses host:port or a URL without a path. Without a scheme, the protocol
// decides between http and https.
func parseTarget(text, protocol string) (target, error) {
	needsTLS := protocol == "h2" || protocol == "h3"
	t := target{addr: text, secure: needsTLS}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return t, fmt.Errorf("want http://host:port, https://host:port or host:port")
		}
		t.addr, t.secure = u.Host, u.Scheme == "https"
		switch {
		case u.Scheme != "http" && u.Scheme != "https":
			return t, fmt.Errorf("want http or https")
		case needsTLS && !t.secure:
			return t, fmt.Errorf("%s needs https", protocol)
		case protocol == "h2c" && t.secure:
			return t, fmt.Errorf("h2c is HTTP/2 without TLS; for https want --protocol h2")
		case u.Port() == "":
			t.addr = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[t.secure])
		}
	}
	if err := checkAddr(t.addr); err != nil {
		return t, err
	}
	return t, nil
}

// checkAddr accepts host:port. What it accepts is safe in a request header.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || strings.ContainsAny(host, " \t\r\n/@?#\"") || len(addr) > 300 {
		return fmt.Errorf("want host:port")
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 || strings.Trim(port, "0123456789") != "" {
		return fmt.Errorf("want a port from 1 to 65535")
	}
	return nil
}

// targets returns the addresses of all targets and whether they use TLS. The options
// must be valid.
func (o *Options) targets() (addrs []string, secure bool) {
	for _, text := range o.Targets {
		t, _ := parseTarget(text, o.Protocol)
		secure = t.secure
		addrs = append(addrs, t.addr)
	}
	return addrs, secure
}
