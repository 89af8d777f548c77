package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// table returns the results as an aligned Markdown table. What has no other name is a median.
func table(r results) string {
	rows := [][]string{{
		"region", "to the leader and back", "write",
		"oracle p50", "oracle p99", "interval p50", "interval p99", "width", "wait after the write p50", "p99",
	}}
	for i, f := range r.regions {
		row := []string{regionNames[i], figure(f.leader), figure(f.write)}
		for _, list := range [][]time.Duration{f.latencies[fromOracle], f.latencies[fromClock]} {
			row = append(row, figure(quantile(list, 0.5)), figure(quantile(list, 0.99)))
		}
		row = append(row, figure(quantile(f.width, 0.5)), figure(quantile(f.beyond, 0.5)), figure(quantile(f.beyond, 0.99)))
		rows = append(rows, row)
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			b.WriteString("| " + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)) + cell + " ")
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+1) + ":")
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// summary says what was checked.
func summary(r results) string {
	return fmt.Sprintf("%d transactions of both kinds, of all regions, are in one real-time order, without a violation.\n", r.transactions)
}

// figure formats a time with about two digits.
func figure(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d == 0:
		return "0"
	case ms < 0.1:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
