package server

import (
	"log/slog"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/internal/node"
)

// protocolTrace writes the steps of the replica to TRACE_FILE. The zero value writes nothing.
type protocolTrace struct {
	file *protocoltrace.Writer
	log  *slog.Logger
}

// openProtocolTrace opens the protocol trace at path, "" for none.
func openProtocolTrace(path string, log *slog.Logger) (t protocolTrace, err error) {
	if t.log = log; path != "" {
		t.file, err = protocoltrace.Open(path, func() int64 { return int64(node.SystemClock{}.Mono()) })
	}
	return t, err
}

// observe returns the observer of a replica that starts, nil for none.
func (t protocolTrace) observe(cfg replica.Config) replica.Observer {
	if t.file == nil {
		return nil
	}
	return t.file.Observe(cfg, func(err error) {
		t.log.Error("TRACE_FILE cannot be written, and ends here; the node goes on", "error", err)
	})
}

// closeTraces ends the traces of requests and of the protocol, once the replica has stopped.
func (m *Member) closeTraces() {
	m.trace.Close()
	if m.protocolTrace.file != nil {
		_ = m.protocolTrace.file.Close() // a write that failed was logged
	}
}
