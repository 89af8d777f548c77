package proxy

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// TCPConfig configures a [TCPServer]. Only Backends is required.
type TCPConfig struct {
	// Backends are the servers that connections are forwarded to.
	Backends []Backend
	// Strategy chooses the backend of a connection; "" means balance.LeastBusy. The key of
	// balance.Sticky is the IP address of the client.
	Strategy balance.Strategy
	// StickyPercent bounds the load of a backend with balance.Sticky, as in [Config].
	StickyPercent int
	// Health configures health checks; without Path and Connect there are none.
	Health Health
	// Ejection configures which backends that refuse connections get none for a while.
	Ejection balance.EjectorConfig
	// Retry bounds retries in proportion to all connections.
	Retry balance.BudgetConfig
	// RetriesMax bounds for one connection how many more backends are tried after one that could
	// not be connected to: less than 0 means none, 0 means 2.
	RetriesMax int
	// Announce is the version of the PROXY protocol in which backends are told the address of the
	// client; 0 means not at all.
	Announce int
	// Limits bounds the server; the zero value means the defaults.
	Limits TCPLimits
	// Observe, if not nil, is called once for every connection that has ended or was refused. It
	// is called on many goroutines, and must not block.
	Observe func(TCPEnd)
	// Log receives lines about connections that fail and the health of backends. It must not
	// block. Nil discards.
	Log *slog.Logger
}

// TCPLimits bounds what clients and backends can make the proxy hold (I7). A field that is 0 or
// less means its default.
type TCPLimits struct {
	// ConnectionsMax bounds the connections of clients; further ones are reset. Default 20000.
	ConnectionsMax int
	// BackendConnectionsMax bounds the connections to one backend. A backend that has them all is
	// not chosen; if all have, the client's connection is reset. Default: no other bound than
	// ConnectionsMax.
	BackendConnectionsMax int
	// DialTimeout bounds connecting to one backend. Default 2 s.
	DialTimeout time.Duration
	// IdleTimeout ends a connection on which no byte has moved in either direction for so long. On Linux
	// what a slow reader takes from the buffer of the system counts as well. Default: 1 h.
	IdleTimeout time.Duration
	// SplicesMax bounds the directions of connections whose bytes the kernel moves at a time,
	// because each takes a pipe, of two files. Others are copied. Default 256.
	SplicesMax int
}

func (l TCPLimits) withDefaults() TCPLimits {
	return TCPLimits{
		ConnectionsMax:        orDefault(l.ConnectionsMax, 20000),
		BackendConnectionsMax: max(l.BackendConnectionsMax, 0),
		DialTimeout:           orDefault(l.DialTimeout, 2*time.Second),
		IdleTimeout:           orDefault(l.IdleTimeout, time.Hour),
		SplicesMax:            orDefault(l.SplicesMax, TCPSplicesMax),
	}
}

// TCPSplicesMax is the default of TCPLimits.SplicesMax. Linux gives each pipe of a process without
// privileges its full size up to some 64 of them, and less beyond.
const TCPSplicesMax = 256

// TCPOutcome says how a connection ended.
type TCPOutcome string

// The outcomes.
const (
	// TCPClosed: both sides closed it in order.
	TCPClosed TCPOutcome = "closed"
	// TCPReset: one side reset it, or died. The other one was reset, too.
	TCPReset TCPOutcome = "reset"
	// TCPIdle: it was idle for too long.
	TCPIdle TCPOutcome = "idle"
	// TCPCut: it was still open at the end of [TCPServer.Shutdown].
	TCPCut TCPOutcome = "cut"
	// TCPRefused: there were too many connections.
	TCPRefused TCPOutcome = "refused"
	// TCPNoBackend: no backend was up and not full, or none could be connected to.
	TCPNoBackend TCPOutcome = "no_backend"
)

// TCPOutcomes returns all of them.
func TCPOutcomes() []TCPOutcome {
	return []TCPOutcome{TCPClosed, TCPReset, TCPIdle, TCPCut, TCPRefused, TCPNoBackend}
}

// TCPEnd describes a connection that has ended.
type TCPEnd struct {
	Outcome TCPOutcome
	// Backend is an index into TCPConfig.Backends, or balance.None.
	Backend int
	// Up and Down are the bytes carried to the backend and to the client.
	Up, Down uint64
	// Wait is the time from the client's connection to that to the backend, or to the failure.
	Wait time.Duration
	// Wall is the time from the client's connection to its end.
	Wall time.Duration
}

// parseAddress parses a backend of a TCPServer.
func parseAddress(b Backend) (target, error) {
	host, port, err := net.SplitHostPort(b.URL)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 || host == "" {
		return target{}, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.200q: want host:port, with a port from 1 to 65535", b.URL)
	}
	addr := net.JoinHostPort(host, port)
	return target{name: addr, addr: addr}, nil
}

// balancing returns the part of c that is the balancer's.
func (c *TCPConfig) balancing() balancing {
	return balancing{
		backends: c.Backends, parse: parseAddress, strategy: c.Strategy, stickyPercent: c.StickyPercent,
		ejection: c.Ejection, retry: c.Retry, retriesMax: c.RetriesMax,
		loadMax: c.Limits.BackendConnectionsMax, log: c.Log,
	}
}
