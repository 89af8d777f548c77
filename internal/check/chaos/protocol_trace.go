//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/spec"
)

// tracePath is where a node writes its protocol trace with [Options.Trace].
func (c *Cluster) tracePath(id uint64) string {
	return filepath.Join(c.Dir, fmt.Sprintf("node%d.trace", id))
}

// CheckTraces kills all nodes, checks their protocol traces against the specification, and returns the number of events. The cluster must have been made with [Options.Trace].
func (c *Cluster) CheckTraces() uint64 {
	c.t.Helper()
	c.Kill()
	var traces []io.Reader
	for _, n := range c.Nodes {
		f, err := os.Open(c.tracePath(n.ID))
		if err != nil {
			c.t.Fatal(err)
		}
		defer f.Close()
		traces = append(traces, f)
	}
	s := spec.New()
	err := protocoltrace.Merge(traces, func(e spec.Event) error {
		if v := s.Step(e); v != nil {
			return v
		}
		return nil
	})
	var v *spec.Violation
	if errors.As(err, &v) {
		c.t.Errorf("the specification does not permit what the nodes did: %v", v)
	} else if err != nil {
		c.t.Errorf("the traces of the nodes: %v", err)
	}
	return s.Events()
}
