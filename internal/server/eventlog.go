package server

import (
	"log/slog"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/inspect/eventlog"
	"github.com/isotone/isotone/internal/node"
)

// stepLog writes the steps of the replica to the event log TRACE_FILE. The zero value writes nothing.
type stepLog struct {
	file *eventlog.Writer
	log  *slog.Logger
}

// openStepLog opens the event log at path, "" for none.
func openStepLog(path string, log *slog.Logger) (s stepLog, err error) {
	if s.log = log; path != "" {
		s.file, err = eventlog.Open(path, func() int64 { return int64(node.SystemClock{}.Mono()) })
	}
	return s, err
}

// observe returns the observer of a replica that begins, nil for none.
func (s stepLog) observe(cfg replica.Config) replica.Observer {
	if s.file == nil {
		return nil
	}
	return s.file.Observe(cfg, func(err error) {
		s.log.Error("the event log ends here: it cannot be written", "error", err)
	})
}

// closeTraces ends the traces of requests and of steps, once the replica has stopped.
func (m *Member) closeTraces() {
	m.trace.Close()
	if m.stepLog.file != nil {
		_ = m.stepLog.file.Close() // a write that failed was logged
	}
}
