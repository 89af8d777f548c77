package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// showPause is the time between two lines of output, or between two changes of the line on a terminal.
	showPause         = time.Second
	showPauseTerminal = 100 * time.Millisecond
)

// show prints the state until ctx is done.
func (b *bank) show(ctx context.Context) error {
	if !isTerminal(b.out) {
		return every(ctx, showPause, func() error {
			_, err := fmt.Fprintln(b.out, b.status())
			return err
		})
	}
	return every(ctx, showPauseTerminal, func() error {
		_, err := fmt.Fprintf(b.out, "\r\x1b[K%s", b.status())
		return err
	})
}

// status describes the counts in one line. While no audit has failed, the total is what it should be.
func (b *bank) status() string {
	c := &b.counts
	var s strings.Builder
	fmt.Fprintf(&s, "total %d in %d audits, %d transfers", b.total(), c.audits.Load(), c.transfers.Load())
	for _, part := range []struct {
		count int64
		text  string
	}{
		{c.refused.Load(), "%d given up after conflicts"},
		{c.unknown.Load(), "%d with unknown outcome"},
		{c.failed.Load(), "%d failed"},
		{c.auditsFailed.Load(), "%d audits without an answer"},
		{c.clients.Load(), "%d clients killed"},
		{c.leaders.Load(), "%d leaders killed"},
	} {
		if part.count > 0 {
			fmt.Fprintf(&s, ", "+part.text, part.count)
		}
	}
	return s.String()
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
