package main

import (
	"context"
	"net"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

type serveCmd struct {
	config.Flags
	faultFlags
}

// Run runs one node until a signal or a failure ends it.
func (c *serveCmd) Run(ctx context.Context, con console) error {
	s, err := c.Parse()
	if err == nil {
		err = server.CheckData(&s)
	}
	if err != nil {
		return err
	}
	if err := s.PeersInClear(); err != nil {
		return usageError(err.Error())
	}
	loops := server.Loops(&s)
	server.TuneRuntime(loops)
	log := startLog(con.err, telemetry.LogOptions{Debug: s.Debug, Pretty: s.Pretty, TimeMS: s.LogTimeMS})
	defer log.Close()
	clock, steps := c.faults(s.NodeID, log.Logger)
	so, err := server.Listen(&s)
	if err != nil {
		return listen.Explain(err)
	}
	return server.Serve(ctx, &s, so, server.Process{
		Options: server.Options{
			Version: version, Clock: clock, Steps: steps, Level: c.level(), Snapshots: c.snapshots(), Loops: loops, KeepProcessors: true, Files: server.OpenFiles(), Log: log,
		},
		Lookup: net.DefaultResolver.LookupSRV,
	}, log.Logger)
}
