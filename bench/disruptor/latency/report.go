package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// report is the output.
type report struct {
	Go   string `json:"go"`
	CPUs int    `json:"cpus"`
	// Load is the load average of the minute before, or empty where there is no /proc/loadavg.
	Load    string   `json:"load_average,omitempty"`
	Rate    int      `json:"rate"`
	Seconds float64  `json:"seconds"`
	Cases   []result `json:"cases"`
}

// result is one row: the latencies of one path in microseconds.
type result struct {
	Path      string  `json:"path"`
	Procs     int     `json:"gomaxprocs"`
	Pinned    bool    `json:"pinned"`
	PerSecond float64 `json:"messages_per_s"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	P999      float64 `json:"p999_us"`
	Max       float64 `json:"max_us"`
}

// newResult sorts latencies, of which there must be at least one. They arrived during took.
func newResult(latencies []time.Duration, took time.Duration) result {
	slices.Sort(latencies)
	at := func(share float64) float64 {
		i := min(int(share*float64(len(latencies))), len(latencies)-1)
		return float64(latencies[i]) / float64(time.Microsecond)
	}
	return result{PerSecond: float64(len(latencies)) / took.Seconds(), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// print writes a Markdown table.
func (r report) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs", r.Go, r.CPUs)
	if r.Load != "" {
		fmt.Fprintf(&b, ", load average %s before", r.Load)
	}
	fmt.Fprintf(&b, ". %d messages/s for %v each; latencies in microseconds.\n\n", r.Rate,
		time.Duration(r.Seconds*float64(time.Second)))
	b.WriteString("| GOMAXPROCS | pinned | path | messages/s | p50 | p99 | p99.9 | max |\n|---:|---|---|---:|---:|---:|---:|---:|\n")
	for _, c := range r.Cases {
		pinned := "no"
		if c.Pinned {
			pinned = "yes"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %.0f | %s | %s | %s | %s |\n", c.Procs, pinned, c.Path, c.PerSecond,
			micros(c.P50), micros(c.P99), micros(c.P999), micros(c.Max))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// micros has two digits or more.
func micros(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
