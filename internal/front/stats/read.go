package stats

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/isotone/isotone"
)

const (
	// FilesMax bounds the files of one Read, each with a buffer and a tally.
	FilesMax = 16
	// lineBytesMax bounds a line; one about a request has less than 2 KiB.
	lineBytesMax = 256 << 10
	// brokenMax bounds the broken lines of a file that are reported one by one.
	brokenMax = 5
	// topMax bounds how many of the slowest requests are kept.
	topMax = 10_000
	// checkEvery is the number of lines between two checks of the context and reports of
	// progress.
	checkEvery = 4096
)

// Source is a log to read.
type Source struct {
	Name   string
	Reader io.Reader
}

// ReadOptions configures [Read].
type ReadOptions struct {
	// Top is how many of the slowest requests are listed.
	Top int
	// By groups the requests by path, code or protocol; "" does not.
	By string
	// Cores is the number of cores to compute workers for.
	Cores int
	// Progress, if not nil, is called now and then with what has been read of all sources
	// together.
	Progress func(bytes int64, requests uint64)
}

// Validate returns an error that matches isotone.ErrInvalidArgument if an option is invalid.
func (o ReadOptions) Validate(sources int) error {
	switch {
	case sources < 1 || sources > FilesMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "%d files: want 1 to %d", sources, FilesMax)
	case o.Top < 0 || o.Top > topMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "top %d: want 0 to %d", o.Top, topMax)
	case !slices.Contains([]string{"", "path", "code", "protocol"}, o.By):
		return isotone.Errorf(isotone.CodeInvalidArgument, "by %.40q: want path, code or protocol", o.By)
	case o.Cores < 1:
		return isotone.Errorf(isotone.CodeInvalidArgument, "cores %d: want 1 or more", o.Cores)
	}
	return nil
}

// file is a log that is being read.
type file struct {
	name  string
	in    *bufio.Reader
	tally *tally
	next  entry // unless ended
	ended bool

	bytes         int64
	lines, others uint64
	broken        uint64
	firstBroken   []BrokenLine
}

// Read evaluates the lines about requests in logs. It reads the logs side by side in the order
// of time, each once and a line at a time, so memory is bounded whatever their size. It skips
// other lines and counts broken ones. When ctx ends it reports what it has read.
//
// Requests that are in several logs, by their request ID, are joined.
func Read(ctx context.Context, sources []Source, o ReadOptions) (*Report, error) {
	if err := o.Validate(len(sources)); err != nil {
		return nil, err
	}
	r := &run{options: o, total: newTally(o.Top), groups: groups{}}
	for _, s := range sources {
		in := bufio.NewReaderSize(&interruptible{ctx: ctx, in: s.Reader}, lineBytesMax)
		f := &file{name: s.Name, in: in, tally: r.total}
		if len(sources) > 1 {
			f.tally = newTally(o.Top)
		}
		r.files = append(r.files, f)
	}
	if len(sources) > 1 {
		r.joiner = newJoiner(o.Top)
	}
	interrupted, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	report := r.report()
	report.Interrupted = interrupted
	return report, nil
}

// run is one call of Read.
type run struct {
	options ReadOptions
	files   []*file
	total   *tally
	groups  groups
	joiner  *joiner // nil with one file
	seen    uint64  // lines
}

func (r *run) read(ctx context.Context) (interrupted bool, err error) {
	for _, f := range r.files {
		if err := r.advance(ctx, f); err != nil {
			return errors.Is(err, errInterrupted), unlessInterrupted(err)
		}
	}
	for {
		at := -1
		for i, f := range r.files {
			if !f.ended && (at < 0 || f.next.Time.Before(r.files[at].next.Time)) {
				at = i
			}
		}
		if at < 0 {
			return false, nil
		}
		r.take(at)
		if err := r.advance(ctx, r.files[at]); err != nil {
			return errors.Is(err, errInterrupted), unlessInterrupted(err)
		}
	}
}

var errInterrupted = errors.New("interrupted")

func unlessInterrupted(err error) error {
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// take counts the next request of a file.
func (r *run) take(at int) {
	f := r.files[at]
	e := &f.next
	r.total.add(e)
	if f.tally != r.total {
		f.tally.add(e)
		r.joiner.add(at, e)
	}
	switch r.options.By {
	case "path":
		r.groups.add(e.Path, e)
	case "code":
		r.groups.add(e.Code, e)
	case "protocol":
		r.groups.add(e.Protocol, e)
	}
}

// advance reads up to the next line about a request.
func (r *run) advance(ctx context.Context, f *file) error {
	for {
		if r.seen++; r.seen%checkEvery == 0 {
			if ctx.Err() != nil {
				return errInterrupted
			}
			r.reportProgress()
		}
		line, err := f.in.ReadSlice('\n')
		f.bytes += int64(len(line))
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = f.in.ReadSlice('\n')
			f.bytes += int64(len(line))
		}
		if err != nil && ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("%s: after line %d: %w", f.name, f.lines, err)
		}
		if err == io.EOF && len(line) == 0 && !long {
			f.ended = true
			return nil
		}
		f.lines++
		if long {
			f.fault(fmt.Errorf("longer than %d bytes", lineBytesMax))
			continue
		}
		e, fault := parseLine(line)
		switch {
		case fault == nil:
			f.next = e
			return nil
		case errors.Is(fault, errOther):
			f.others++
		default:
			f.fault(fault)
		}
	}
}

// fault counts the last line as broken.
func (f *file) fault(why error) {
	if f.broken++; f.broken <= brokenMax {
		f.firstBroken = append(f.firstBroken, BrokenLine{Line: f.lines, Why: why.Error()})
	}
}

func (r *run) reportProgress() {
	if r.options.Progress == nil {
		return
	}
	sum := int64(0)
	for _, f := range r.files {
		sum += f.bytes
	}
	r.options.Progress(sum, r.total.requests)
}
