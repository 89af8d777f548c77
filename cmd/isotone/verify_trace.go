package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/spec"
)

// traceResult is what the specification says of protocol traces.
type traceResult struct {
	Events    uint64        `json:"events"`
	Answers   uint64        `json:"answers"`
	Processes uint64        `json:"processes"`
	Refused   *refusedEvent `json:"refused,omitempty"`

	took time.Duration
}

// refusedEvent is the first event that is not permitted. Number counts from 1.
type refusedEvent struct {
	Number uint64     `json:"number"`
	Rule   string     `json:"rule"`
	Why    string     `json:"why"`
	Event  spec.Event `json:"event"`
}

// verifyTrace checks files that nodes have written to TRACE_FILE against the specification.
func verifyTrace(ctx context.Context, con console, files []string, asJSON bool) error {
	if len(files) == 0 {
		return usagef("verify trace: want the files that nodes have written to TRACE_FILE")
	}
	var traces []io.Reader
	for i, name := range files {
		if slices.Contains(files[:i], name) {
			return usagef("verify trace: %s is given twice", name)
		}
		f, err := os.Open(name)
		if err != nil {
			return usagef("verify trace: %v", err)
		}
		defer f.Close()
		traces = append(traces, f)
	}
	r, err := checkTrace(ctx, traces)
	if err != nil {
		return fmt.Errorf("verify trace: %w", err)
	}
	if err := r.print(con.out, asJSON); err != nil {
		return err
	}
	if r.Refused != nil {
		return fmt.Errorf("verify trace: event %d breaks the rule %q", r.Refused.Number, r.Refused.Rule)
	}
	return nil
}

// checkTrace checks protocol traces against the specification.
func checkTrace(ctx context.Context, traces []io.Reader) (traceResult, error) {
	var r traceResult
	began := time.Now()
	events, err := protocoltrace.Check(traces, func(e spec.Event) error {
		switch e.Kind {
		case spec.Start:
			r.Processes++
		case spec.Answer:
			r.Answers++
		}
		return ctx.Err()
	})
	r.Events, r.took = events, time.Since(began)
	var v *spec.Violation
	switch {
	case errors.As(err, &v):
		r.Refused = &refusedEvent{Number: v.Number + 1, Rule: v.Rule, Why: v.Why, Event: v.Event}
		return r, nil
	case err == nil && r.Processes == 0:
		return r, errors.New("there is no event: want what a node wrote to TRACE_FILE")
	}
	return r, err
}

func (r *traceResult) print(out io.Writer, asJSON bool) error {
	if asJSON {
		text, err := json.MarshalIndent(r, "", "  ")
		return errors.Join(err, printText(out, string(text)+"\n"))
	}
	text := fmt.Sprintf("events %d, answers %d, processes %d; checked in %v, %.0f events a second\n", r.Events, r.Answers, r.Processes, r.took.Round(time.Millisecond), float64(r.Events)/r.took.Seconds())
	if f := r.Refused; f == nil {
		text += "the specification permits all of them\n"
	} else {
		line, err := json.Marshal(f.Event)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("event %d, of node %d, is not permitted\n  rule   %s\n  why    %s\n  event  %s\n", f.Number, f.Event.Node, f.Rule, f.Why, line)
	}
	return printText(out, text)
}
