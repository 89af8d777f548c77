package main

import (
	"context"
	"net"
	"os"

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
	misspelled := config.Misspelled(os.Environ())
	s, err := c.Parse()
	if err == nil {
		err = server.CheckData(&s)
	}
	if err != nil {
		for _, m := range misspelled { // one of them may be why
			con.tell("isotone: " + m.String())
		}
		return err
	}
	if err := s.PeersInClear(); err != nil {
		return usageError(err.Error())
	}
	loops := server.Loops(&s)
	server.TuneRuntime(loops)
	log := startLog(con.err, telemetry.LogOptions{Debug: s.Debug, Pretty: s.Pretty, TimeMS: s.LogTimeMS})
	defer log.Close()
	for _, m := range misspelled {
		log.Warn(m.String())
	}
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
