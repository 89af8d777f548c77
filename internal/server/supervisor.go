package server

import (
	"log/slog"
	"time"

	"github.com/isotone/isotone/internal/host/supervisor"
)

// stopTimeMax is how long a node takes at most to stop, besides SHUTDOWN_DELAY_MS: a transfer of
// leadership, requests under way and worker leases have bounds of their own, which are below this
// together; see docs/health.md.
const stopTimeMax = 15 * time.Second

// tellReady tells the supervisor that the node answers on its client port. That is also so while it
// waits for something that only operators can bring about: the supervisor must not take it for
// one that hangs, and start it again and again.
func tellReady(status string, log *slog.Logger) { tell(supervisor.Ready(status), log) }

// tellStopping tells the supervisor that the node ends, and how long that may take.
func tellStopping(delay time.Duration, log *slog.Logger) {
	tell(supervisor.Stopping(delay+stopTimeMax), log)
}

// tell logs why the supervisor could not be told: a node serves without one.
func tell(err error, log *slog.Logger) {
	if err != nil {
		log.Warn("the supervisor cannot be told the state of this node", "err", err)
	}
}
