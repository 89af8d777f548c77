package main

import (
	"fmt"

	"github.com/isotone/isotone/internal/host/config"
)

// checkTracing checks the flags about traces, and completes the endpoint.
func (c *proxyCmd) checkTracing(found *flagErrors) {
	if c.TraceSample < 0 || c.TraceSample > config.TraceSampleMax {
		found.add(fmt.Errorf("--trace-sample %d: want 0 to %d", c.TraceSample, config.TraceSampleMax))
	}
	if c.TraceEndpoint == "" {
		return
	}
	endpoint, err := config.ParseTraceEndpoint(c.TraceEndpoint)
	found.note("trace-endpoint", err)
	c.TraceEndpoint = endpoint
}
