package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// Options say what is run. Start from [Default].
type Options struct {
	// Version is that of this program, Repeat the command line that repeats the run; both are for the report.
	Version string
	Repeat  []string

	// System names the driver, Driver is its command line. DriverOptions go to it.
	System        string
	Driver        []string
	DriverOptions map[string]string
	// Nodes is how many nodes are started; 0 lets the driver decide. With Addresses nothing is started, and these are
	// asked.
	Nodes     int
	Addresses []string

	Duration time.Duration
	// Clients are spread over so many Processes. A call asks for up to Count numbers, and may take Timeout.
	Clients   int
	Processes int
	Count     int
	Timeout   time.Duration

	// Seed decides which of the Faults begin when. Without Faults, all kinds that are possible.
	Seed   uint64
	Faults []string
	// UntilBroken ends the run as soon as an answer has broken what the system promises.
	UntilBroken bool
	// Window is that of [lincheck.NewOnline].
	Window int

	// Dir is where nodes have their data and logs; if it is empty, a temporary directory that is removed at the end.
	Dir string
	// Show is called a few times a second, if it is set, with what was measured until then.
	Show func(*Result)

	hurry time.Duration // in tests, how many times shorter faults and the pauses between them are; 0 stands for 1
}

// The bounds of options.
const (
	NodesMax     = 25
	ClientsMax   = 1024
	ProcessesMax = 16
	CountMax     = 1 << 20
	DurationMin  = time.Second
	DurationMax  = 7 * 24 * time.Hour
	WindowMax    = 1 << 24
)

// Default returns the options of a run of a minute with 24 clients.
func Default() Options {
	return Options{Duration: time.Minute, Clients: 24, Processes: 3, Count: 1, Timeout: time.Second, Window: 1 << 20}
}

// Validate returns an error that names each option that is out of range. It matches isotone.ErrInvalidArgument.
func (o *Options) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	between := func(name string, value, low, high int) {
		if value < low || value > high {
			fault("--%s %d: want %d to %d", name, value, low, high)
		}
	}
	between("nodes", o.Nodes, 0, NodesMax)
	between("clients", o.Clients, 1, ClientsMax)
	between("processes", o.Processes, 1, ProcessesMax)
	between("count", o.Count, 1, CountMax)
	between("window", o.Window, 1, WindowMax)
	if o.Duration < DurationMin || o.Duration > DurationMax {
		fault("--duration %v: want %v to %v", o.Duration, DurationMin, DurationMax)
	}
	if o.Timeout < time.Millisecond || o.Timeout > time.Minute {
		fault("--timeout %v: want 1ms to 1m", o.Timeout)
	}
	for _, kind := range o.Faults {
		if kind != "none" && !slices.Contains(FaultKinds, kind) {
			fault("--faults %s: want none, or some of %s", kind, strings.Join(FaultKinds, ", "))
		}
	}
	if slices.Contains(o.Faults, "none") && len(o.Faults) > 1 {
		fault("--faults: none stands alone")
	}
	for i, address := range o.Addresses {
		switch {
		case address == "":
			fault("--endpoint: an address is empty")
		case slices.Contains(o.Addresses[:i], address):
			fault("--endpoint %s: given twice", address)
		}
	}
	if len(o.Addresses) > 0 && o.Nodes > 0 {
		fault("--nodes and --endpoint: the nodes at an endpoint are there already")
	}
	if len(o.Addresses) > 0 && len(o.Faults) > 0 && o.Faults[0] != "none" {
		fault("--faults and --endpoint: there are no faults for nodes that run already")
	}
	if len(o.Driver) == 0 {
		fault("no driver")
	}
	if err := errors.Join(errs...); err != nil {
		return isotone.Errorf(isotone.CodeInvalidArgument, "%v", err)
	}
	return nil
}
