package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/child"
)

// How says what befalls a leader.
type How string

// The ways in which a leader ends.
const (
	HowKill  How = "kill"  // SIGKILL: the process ends at once
	HowStop  How = "stop"  // SIGSTOP, then SIGCONT once its successor has led for a while
	HowDrain How = "drain" // SIGTERM: it transfers its leadership and ends
)

// done says what was done to a leader.
func (h How) done() string {
	switch h {
	case HowStop:
		return "stopped (SIGSTOP)"
	case HowDrain:
		return "drained (SIGTERM)"
	}
	return "killed (SIGKILL)"
}

// noun is what an event is called in texts.
func (h How) noun() string {
	switch h {
	case HowStop:
		return "stop"
	case HowDrain:
		return "drain"
	}
	return "kill"
}

// The limits of a demo. A run is bounded because every millisecond of it is kept.
const (
	// Nodes is how many nodes a demo has: the smallest number that survives the loss of one.
	Nodes = 3

	killsMax    = 100
	clientsMax  = 64
	everyMin    = time.Second
	everyMax    = time.Minute
	durationMax = 10 * time.Minute
)

// Options describe a demo. Start from [Default]; the zero value is not valid.
type Options struct {
	// Command starts isotone; " serve" is appended.
	Command []string
	// Kills is how often a leader ends, 0 to 100, and Every the time between two, 1 s to 1 min. It is
	// longer if the cluster takes longer until all nodes are ready again.
	Kills int
	Every time.Duration
	// How says what befalls leaders.
	How How
	// Clients is the number of clients, 1 to 64. Each has one call under way at a time.
	Clients int
	// Duration ends the run, however many leaders have ended, at most 10 min; 0 means Kills times
	// Every.
	Duration time.Duration
	// Version is reported in the result.
	Version string
	// Show, if not nil, is called several times a second with what was measured until then, and
	// must return quickly. The result is its own.
	Show func(*Result)
}

// Default returns five kills, one every three seconds, and eight clients.
func Default() Options {
	return Options{Kills: 5, Every: 3 * time.Second, How: HowKill, Clients: 8}
}

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists everything that
// is wrong.
func (o *Options) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(o.Command) == 0 {
		fault("no command to start nodes with")
	}
	if o.Kills < 0 || o.Kills > killsMax {
		fault("--kills %d: want 0 to %d", o.Kills, killsMax)
	}
	if o.Every < everyMin || o.Every > everyMax {
		fault("--every %v: want %v to %v", o.Every, everyMin, everyMax)
	}
	if o.Clients < 1 || o.Clients > clientsMax {
		fault("--clients %d: want 1 to %d", o.Clients, clientsMax)
	}
	switch {
	case o.How != HowKill && o.How != HowStop && o.How != HowDrain:
		fault("--how %q: want kill, stop or drain", o.How)
	case o.How != HowKill && child.Stop == nil:
		fault("--how %s: this system has no such signal; want kill", o.How)
	}
	switch length := o.length(); {
	case o.Duration < 0 || o.Duration > durationMax || o.Duration > 0 && o.Duration < everyMin:
		fault("--duration %v: want 0, or %v to %v", o.Duration, everyMin, durationMax)
	case length == 0:
		fault("--kills 0: want a --duration as well")
	case length > durationMax:
		fault("--kills %d --every %v: %v in all; want at most %v", o.Kills, o.Every, length, durationMax)
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "%s", strings.Join(faults, "; "))
}

// length returns how long the load lasts if the cluster is always ready in time.
func (o *Options) length() time.Duration {
	if o.Duration > 0 {
		return o.Duration
	}
	return time.Duration(o.Kills) * o.Every
}
