//go:build faults

package main

import (
	"log/slog"
	"os"

	"github.com/isotone/isotone/internal/host/faults"
	"github.com/isotone/isotone/internal/host/stops"
	"github.com/isotone/isotone/internal/node"
)

// faultFlags are the faults that tests cause in a node. Releases have none of them.
type faultFlags struct {
	FaultClock     string `name:"fault-clock" env:"ISOTONE_FAULT_CLOCK" hidden:"" help:"For tests: a JSON file with faults of this node's clock."`
	FaultLevel     uint64 `name:"fault-level" env:"ISOTONE_FAULT_LEVEL" hidden:"" help:"For tests: the newest feature level that this node knows."`
	FaultSnapshots uint64 `name:"fault-snapshots" env:"ISOTONE_FAULT_SNAPSHOTS" hidden:"" help:"For tests: how many log entries lie between snapshots."`
	FaultStep      string `name:"fault-step" env:"ISOTONE_FAULT_STEP" hidden:"" help:"For tests: a file that names the step at which this process stops (SIGSTOP)."`
}

// faults returns the clock and the steps of a node, nil for those without faults.
func (f *faultFlags) faults(id uint64, log *slog.Logger) (clock node.Clock, steps node.Steps) {
	if f.FaultClock != "" {
		log.Warn("the clock of this node follows a fault file", "file", f.FaultClock)
		clock = faults.NewClock(f.FaultClock, node.SystemClock{})
	}
	if f.FaultStep != "" {
		log.Warn("this node stops where a fault file says", "file", f.FaultStep)
		steps = stops.NewSteps(f.FaultStep, id)
	}
	return clock, steps
}

// level returns the newest feature level that a node knows, 0 for that of its version.
func (f *faultFlags) level() uint64 { return f.FaultLevel }

// snapshots returns how many log entries lie between snapshots, 0 for as many as usual.
func (f *faultFlags) snapshots() uint64 { return f.FaultSnapshots }

// stopPoint lets tests kill a command after one of its steps.
type stopPoint struct {
	FaultStop string `name:"fault-stop" env:"ISOTONE_FAULT_STOP" hidden:"" help:"For tests: kill this process after the step of this name."`
}

// step is called after each step.
func (p *stopPoint) step(name string) {
	if p.FaultStop != "" && p.FaultStop == name {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // the signal is on its way
	}
}
