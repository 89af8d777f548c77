package clockbench

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
)

const (
	// processesMax and generatorsMax bound what one machine can run at once.
	processesMax  = 64
	generatorsMax = 256
	// durationMin leaves each phase some time, durationMax keeps the arithmetic of the checks exact.
	durationMin = 100 * time.Millisecond
	durationMax = 24 * time.Hour
	// batchSize is the number of timestamps of a batch.
	batchSize = 256
	// phases is the number of parts of a run: the operations take half of them, each of the five others
	// one.
	phases = 10
)

// Options describe a run.
type Options struct {
	// Options has the targets, TLS and credentials, and what LoadReadings uses. Duration is that of the
	// whole run, Threads the value of GOMAXPROCS in each process. What the load of timestamps has
	// besides is not used.
	bench.Options
	// Processes is the number of processes, Generators that of the goroutines in each, each with a
	// generator of its own.
	Processes, Generators int
	// Command returns a process that calls [Serve] with its standard input and output, and that has not
	// been started.
	Command func() (*exec.Cmd, error)
	// Show, if not nil, is called about once a second with a line that says how far the run is.
	Show func(line string)
}

// Validate returns nil, or a [bench.Faults] with everything that is wrong.
func (o *Options) Validate() error {
	var faults bench.Faults
	if more, ok := o.Options.Validate().(bench.Faults); ok {
		faults = more
	}
	number := func(flag string, value, high int) {
		if value < 1 || value > high {
			faults = append(faults, fmt.Sprintf("--%s %d: want 1 to %d", flag, value, high))
		}
	}
	number("processes", o.Processes, processesMax)
	number("generators", o.Generators, generatorsMax)
	if o.Protocol != "http1" && o.Protocol != "resp" {
		faults = append(faults, fmt.Sprintf("--protocol %s: want http1 or resp with --interval", o.Protocol))
	}
	if o.Duration < durationMin || o.Duration > durationMax {
		faults = append(faults, fmt.Sprintf("--duration %v: want %v to %v with --interval", o.Duration, durationMin, durationMax))
	}
	if runtime.GOOS != "linux" {
		faults = append(faults, "--interval: want Linux, where processes share a steady clock to compare their reads by")
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// step is a phase of all processes.
type step struct {
	name string
	phase
	alone bool // one goroutine of the first process
}

// steps returns the phases of a run, except for the readings, of which it returns the length.
func (o *Options) steps() (list []step, readings phase) {
	part := o.Duration / phases
	within := func(n int, least time.Duration) time.Duration { // so that n goroutines make less than recordsMax
		return max(least, 2*o.Duration*time.Duration(n)/recordsMax)
	}
	readPace := within(o.Processes, readPaceMin)
	generate := func(name string, batch int, alone bool) step {
		return step{name, phase{Duration: part, Lanes: o.Generators, Batch: batch, ReadPace: readPace}, alone}
	}
	operate := step{"operations", phase{
		Duration: part * (phases - 5), Lanes: o.Generators, Pace: within(o.Processes*o.Generators, 0), ReadPace: readPace,
	}, false}
	return []step{
		operate,
		generate("one generator", 1, true), generate("one generator, batches", batchSize, true),
		generate("all generators", 1, false), generate("all generators, batches", batchSize, false),
	}, phase{Duration: part, ReadPace: readPace}
}
