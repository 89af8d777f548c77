package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify"
)

// Bounds of a file. Within them a page has at most a few megabytes; a run of a week has less.
const (
	fileMax     = 64 << 20 // bytes
	columnsMax  = 200_000
	columnMSMax = 3_600_000
	faultsRead  = 100_000
	nodesMax    = 1000
	listMax     = 1000       // of arguments, and of what was left out
	secondsMax  = 10_000_000 // 115 days
	digitsRead  = 39         // of a number below 2¹²⁸
)

// Read reads what [verify.Result.WriteJSON] wrote. What it accepts can be shown.
func Read(from io.Reader) (*verify.Result, error) {
	var r verify.Result
	if err := json.NewDecoder(io.LimitReader(from, fileMax)).Decode(&r); err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "this is no result of isotone verify --json: %v", err)
	}
	for _, check := range []func(*verify.Result) error{checkSizes, checkFigures, checkVerdicts, checkAnomalies, checkFaults} {
		if err := check(&r); err != nil {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "this is no result of isotone verify --json: %v", err)
		}
	}
	return &r, nil
}

// checkSizes bounds all lists.
func checkSizes(r *verify.Result) error {
	for _, list := range []struct {
		name            string
		has, least, max int
	}{
		{"nodes", len(r.Nodes), 1, nodesMax}, {"verdicts", len(r.Verdicts), 1, len(verify.Orders)},
		{"anomalies", len(r.Anomalies), 0, verify.AnomaliesMax}, {"errors", len(r.Errors), 0, verify.ErrorsMax},
		{"faults", len(r.Faults), 0, faultsRead}, {"columns", len(r.Columns), 0, columnsMax},
		{"command", len(r.Command), 0, listMax}, {"left_out", len(r.LeftOut), 0, listMax},
	} {
		if list.has < list.least || list.has > list.max {
			return fmt.Errorf("%s has %d elements, want %d to %d", list.name, list.has, list.least, list.max)
		}
	}
	return nil
}

// checkFigures checks what is drawn as a chart.
func checkFigures(r *verify.Result) error {
	if r.ColumnMS < 1 || r.ColumnMS > columnMSMax {
		return fmt.Errorf("column_ms is %d, want 1 to %d", r.ColumnMS, columnMSMax)
	}
	if end := float64(len(r.Columns)) * float64(r.ColumnMS) / 1000; !isTime(end) {
		return fmt.Errorf("its columns end after %g s, want at most %d s", end, secondsMax)
	}
	if r.Clients < 0 || r.Processes < 0 || r.CPUs < 0 {
		return fmt.Errorf("clients, processes and cpus are %d, %d and %d, want 0 or more", r.Clients, r.Processes, r.CPUs)
	}
	times := []float64{r.Seconds, r.P50MS / 1000, r.P99MS / 1000, r.MaxMS / 1000, r.LongestMS / 1000}
	for _, c := range r.Columns {
		times = append(times, c.P50MS/1000, c.P99MS/1000, c.MaxMS/1000)
	}
	return checkTimes("it", times...)
}

// checkTimes checks times in seconds.
func checkTimes(what string, times ...float64) error {
	if at := slices.IndexFunc(times, func(t float64) bool { return !isTime(t) }); at >= 0 {
		return fmt.Errorf("%s has a time of %g s, want 0 to %d", what, times[at], secondsMax)
	}
	return nil
}

func isTime(seconds float64) bool { return seconds >= 0 && seconds <= secondsMax }

func checkVerdicts(r *verify.Result) error {
	want := verify.OrdersBeside(r.Verdicts[0].Order)
	if len(r.Verdicts) != len(want) {
		return fmt.Errorf("verdicts has %d elements, want %d", len(r.Verdicts), len(want))
	}
	for i, v := range r.Verdicts {
		if v.Order != want[i] {
			return fmt.Errorf("verdict %d is of order %q, want %q", i+1, v.Order, want[i])
		}
	}
	return nil
}

func checkAnomalies(r *verify.Result) error {
	for i := range r.Anomalies {
		a := &r.Anomalies[i]
		if orders := verify.OrdersBeside(r.Verdicts[0].Order); !slices.Contains(orders, a.Order) {
			return fmt.Errorf("anomaly %d is of order %q, want one of %q", i+1, a.Order, orders)
		}
		for _, c := range []*verify.Call{&a.Earlier, &a.Later} {
			if first, _ := bounds(c); first == nil || first.Sign() < 0 || len(c.First) > digitsRead {
				return fmt.Errorf("anomaly %d has the number %.50q, want a decimal number below 2^128", i+1, c.First)
			}
			if !c.Known {
				continue
			}
			if c.Node < 0 || c.Node >= len(r.Nodes) || c.EndedS < c.BeganS {
				return fmt.Errorf("anomaly %d has a call of node %d from %g s to %g s, want one of %d nodes and an end after the beginning", i+1, c.Node, c.BeganS, c.EndedS, len(r.Nodes))
			}
			if err := checkTimes(fmt.Sprintf("anomaly %d", i+1), c.BeganS, c.EndedS); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFaults(r *verify.Result) error {
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.EndS != 0 && f.EndS < f.AtS || len(f.Nodes) > len(r.Nodes) {
			return fmt.Errorf("fault %d lasts from %g s to %g s and hits %d nodes, want an end after the beginning and at most %d", i+1, f.AtS, f.EndS, len(f.Nodes), len(r.Nodes))
		}
		if at := slices.IndexFunc(f.Nodes, func(n int) bool { return n < 0 || n >= len(r.Nodes) }); at >= 0 {
			return fmt.Errorf("fault %d hits node %d of %d", i+1, f.Nodes[at], len(r.Nodes))
		}
		if err := checkTimes(fmt.Sprintf("fault %d", i+1), f.AtS, f.EndS, f.SilentMS/1000, math.Abs(float64(f.ClockMS))/1000); err != nil {
			return err
		}
	}
	return nil
}
