package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
)

// gcPercent lets garbage grow to four times the live heap, a few megabytes, before it is
// collected. Raft allocates in every round: at the default of 100, a loaded node collects
// several times a second. GOGC overrides it.
const gcPercent = 400

// TuneRuntime prepares the Go runtime of this process for a number of loops, each of which keeps its
// processor while it sleeps. With 0, GOMAXPROCS goes on following the limits of a container.
func TuneRuntime(loops int) {
	if loops > 0 {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + loops)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// Process is what a node is in, beside its settings.
type Process struct {
	Options
	// Lookup finds the initial members in DNS.
	Lookup LookupSRV
	// Started, if not nil, is called when the member serves.
	Started func(*Member)
}

// LookupSRV is [net.Resolver.LookupSRV].
type LookupSRV func(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)

// Serve runs one node on the sockets, which it owns. It finds out which member the node is, waits until
// the cluster or DNS has told what it needs, and serves until ctx ends, an operator drains the node, or
// it fails. It changes the settings to what it has found out. p.ID and p.Join are set by it.
func Serve(ctx context.Context, s *config.Settings, so Sockets, p Process, log *slog.Logger) error {
	var err error
	p.ID, p.Join, err = identify(ctx, s, so.waiting(), p.Lookup, p.Steps, log)
	if err == nil {
		err = discover(ctx, s, so.waiting(), p.Lookup, log)
	}
	if err != nil {
		err = errors.Join(err, so.Close())
		if (errors.Is(err, errStoppedJoining) || errors.Is(err, errStoppedDiscovering)) && ctx.Err() != nil {
			log.Info("stopped", "signal", context.Cause(ctx).Error())
			return nil
		}
		return err
	}
	m, err := Start(s, so, p.Options, log)
	if err != nil {
		return err
	}
	serving := []any{"node", s.NodeID, "http", so.HTTP.Addr().String(), "raft", so.Peer.Addr().String(), "advertise", m.Addr}
	if so.Thrift != nil {
		serving = append(serving, "thrift", so.Thrift.Addr().String())
	}
	if so.PD != nil {
		serving = append(serving, "pd", so.PD.Addr().String())
	}
	if so.Admin != nil {
		serving = append(serving, "admin", so.Admin.Addr().String())
	}
	log.Info("serving", serving...)
	tellReady("serving", log)
	if p.Started != nil {
		p.Started(m)
	}
	if err := m.Wait(ctx); err != nil {
		log.Error("this node ends", "err", err)
		return errors.Join(err, m.Close())
	}
	tellStopping(s.ShutdownDelay, log)
	if ctx.Err() != nil {
		log.Info("stopping", "signal", context.Cause(ctx).Error())
	} else {
		log.Info("stopping", "request", "POST "+web.DrainPath)
	}
	if err := m.Stop(log); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}
