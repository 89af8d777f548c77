package demofencing

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/child"
)

// The limits of a run: those of sessions, and what fits on a screen.
const (
	// Nodes is how many nodes a demo has: the smallest number that survives the loss of one.
	Nodes = 3

	roundsMax = 1000
	ttlMin    = 100 * time.Millisecond
	ttlMax    = time.Minute
)

// Options describe a run. Start from [Default]; the zero value is not valid.
type Options struct {
	// Command starts isotone; " serve" is appended for nodes, and HolderArgs for holders.
	Command    []string
	HolderArgs []string
	// Rounds is how often a holder is paused, 1 to 1000.
	Rounds int
	// TTL is that of the holders' sessions, 100 ms to 1 min, in whole milliseconds. A round takes about twice as long.
	TTL time.Duration
	// Version is reported in the result.
	Version string
	// Show, if not nil, is called after each event of a round and at its end, and must return quickly. It does not keep the round.
	Show func(*Round)
}

// Default returns one round with a TTL of a second.
func Default() Options { return Options{Rounds: 1, TTL: time.Second} }

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists everything that is wrong.
func (o *Options) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(o.Command) == 0 {
		fault("no command to start nodes with")
	}
	if o.Rounds < 1 || o.Rounds > roundsMax {
		fault("--rounds %d: want 1 to %d", o.Rounds, roundsMax)
	}
	if o.TTL < ttlMin || o.TTL > ttlMax || o.TTL%time.Millisecond != 0 {
		fault("--ttl %v: want %v to %v, in whole milliseconds", o.TTL, ttlMin, ttlMax)
	}
	if child.Stop == nil {
		fault("this system has no signal that pauses a process (SIGSTOP)")
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "%s", strings.Join(faults, "; "))
}

// redisProgram returns the path of redis-server.
func redisProgram() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", isotone.Errorf(isotone.CodeInvalidArgument, "redis-server is not in PATH: install it (Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis)")
	}
	return path, nil
}
