package clockbench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// This file is what the command and its processes say to each other, in package gob: the command sends
// orders; a process answers with messages, of which Ready or Failed is in the first.

// order has a process begin a phase or, if Stop, end the one under way and all later ones at once.
type order struct {
	Stop  bool
	Phase phase
}

// phase is what all goroutines of a process do for some time. Reads of the cluster clock are recorded
// meanwhile.
type phase struct {
	Duration time.Duration
	// Lanes is the number of goroutines with a generator each.
	Lanes int
	// Batch is how many timestamps a lane makes at once, as fast as it can. 0 has it make one after the
	// other instead and wait for each, with timestamps of the oracle in between. These operations begin
	// Pace apart, at least.
	Batch int
	Pace  time.Duration
	// ReadPace is the time between two reads.
	ReadPace time.Duration
}

// message is what a process sends.
type message struct {
	Ready  bool
	Failed string // the process cannot work: why
	// Records since the message before.
	Operations []Operation
	Reads      []Read
	// Done ends a phase.
	Done *outcome
}

// outcome is what a process has measured in a phase.
type outcome struct {
	Generators []Generator
	// PerSecond is how many timestamps the lanes have made a second, if Batch is not 0.
	PerSecond  float64
	Errors     map[string]uint64
	Histograms map[string]*hdrhistogram.Snapshot
}

// Names of histograms. All are of nanoseconds, and from phases with Batch 0.
const (
	histogramWidth  = "width"
	histogramAge    = "age"
	histogramLeft   = "left"
	histogramCommit = "commit wait"
	histogramOracle = "oracle"
)

const (
	// recordsMax bounds the operations, and the reads, of a run. One takes about a hundred bytes. The
	// paces are such that a run does not reach it.
	recordsMax = 1 << 19
	// flushSize and flushEvery are when a goroutine sends its records.
	flushSize  = 1 << 10
	flushEvery = 250 * time.Millisecond
	// readPaceMin is the time between two reads of a process, unless the run is long.
	readPaceMin = time.Millisecond
	// latencyMax is the largest time of a histogram; longer ones count as this.
	latencyMax = int64(2 * time.Hour)
	digits     = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, latencyMax, digits) }
