package main

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
)

type serveCmd struct {
	config.Flags
	faultFlags
}

// gcPercent lets garbage grow to four times the live heap, a few megabytes, before it is
// collected. Raft allocates in every round: at the default of 100, a loaded node collects
// several times a second. GOGC overrides it.
const gcPercent = 400

// Run runs one node until a signal or a failure ends it.
func (c *serveCmd) Run(ctx context.Context, con console) error {
	s, err := c.Parse()
	if err == nil {
		err = checkAlone(&s)
	}
	if err == nil {
		err = checkData(&s)
	}
	if err != nil {
		return err
	}
	if err := s.PeersInClear(); err != nil {
		return usageError(err.Error())
	}
	loops := loops(&s)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + loops) // a loop keeps its processor while it sleeps
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := startLog(con.err, telemetry.LogOptions{Debug: s.Debug, Pretty: s.Pretty, TimeMS: s.LogTimeMS})
	defer log.Close()
	clock, steps := c.faults(s.NodeID, log.Logger)
	so, err := listen(&s)
	if err != nil {
		return taken(err)
	}
	id, join, err := identify(ctx, &s, so.waiting(), net.DefaultResolver.LookupSRV, steps, log.Logger)
	if err == nil {
		err = discover(ctx, &s, so.waiting(), net.DefaultResolver.LookupSRV, log.Logger)
	}
	if err != nil {
		err = errors.Join(err, so.close())
		if (errors.Is(err, errStoppedJoining) || errors.Is(err, errStoppedDiscovering)) && ctx.Err() != nil {
			log.Info("stopped", "signal", context.Cause(ctx).Error())
			return nil
		}
		return err
	}
	m, err := startMember(&s, so, memberOptions{id: id, join: join, clock: clock, steps: steps, level: c.level(), loops: loops, keepProcessors: true, files: openFiles(), log: log}, log.Logger)
	if err != nil {
		return err
	}
	serving := []any{"node", s.NodeID, "http", so.http.Addr().String(), "raft", so.peer.Addr().String(), "advertise", m.addr}
	if so.thrift != nil {
		serving = append(serving, "thrift", so.thrift.Addr().String())
	}
	if so.admin != nil {
		serving = append(serving, "admin", so.admin.Addr().String())
	}
	log.Info("serving", serving...)
	tellReady("serving", log.Logger)
	if err := m.wait(ctx); err != nil {
		log.Error("this node ends", "err", err)
		return errors.Join(err, m.close())
	}
	tellStopping(s.ShutdownDelay, log.Logger)
	if ctx.Err() != nil {
		log.Info("stopping", "signal", context.Cause(ctx).Error())
	} else {
		log.Info("stopping", "request", "POST "+drainPath)
	}
	if err := m.stop(log.Logger); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}
