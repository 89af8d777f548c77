package server

import "log/slog"

const (
	// filesReserved are the open files that clients must leave to the rest of a node: listeners, the
	// disk, peers, the admin port, sources of live documents, and connections on their way to the
	// standard servers, which take two for a moment. Of a small limit it is a quarter.
	filesReserved = 256
	// thriftConnectionsMax is what Thrift has where files are plenty, and of few files a fifth.
	thriftConnectionsMax = 4096
)

// connectionLimits are the connections that clients may have.
type connectionLimits struct {
	client int // on the client port
	thrift int
}

// shareFiles returns the limits with files open files, 0 if unknown: as many connections on the
// client port as wanted, or as many as there are files for.
func shareFiles(wanted int, thrift bool, files uint64) connectionLimits {
	l := connectionLimits{client: wanted, thrift: thriftConnectionsMax}
	if files == 0 {
		return l
	}
	files -= min(filesReserved, files/4)
	if thrift {
		l.thrift = int(max(1, min(thriftConnectionsMax, files/5)))
		files -= min(uint64(l.thrift), files)
	}
	l.client = int(max(1, min(uint64(wanted), files)))
	return l
}

// limitConnections is shareFiles. It warns if that is less than wanted.
func limitConnections(wanted int, thrift bool, files uint64, log *slog.Logger) connectionLimits {
	l := shareFiles(wanted, thrift, files)
	if l.client < wanted {
		log.Warn("MAX_CONNECTIONS is more than the limit of open files allows; raise LimitNOFILE= of systemd, ulimit -n, or nofile of the container, or lower MAX_CONNECTIONS",
			"MAX_CONNECTIONS", wanted, "connections", l.client, "RLIMIT_NOFILE", files)
	}
	return l
}

// shareProxyFiles returns how many connections of clients a proxy may have with files open files, 0
// if unknown: as many as wanted, or as many as there are files for. Each may need a connection to a
// backend as well, of which there are at most backends.
func shareProxyFiles(wanted, backends int, files uint64) int {
	if files == 0 {
		return wanted
	}
	files -= min(filesReserved, files/4)
	// Those that find all connections to backends taken need one file only.
	most := max(files/2, files-min(files, uint64(backends)))
	return int(max(1, min(uint64(wanted), most)))
}

// limitProxyConnections is shareProxyFiles. It warns if that is less than wanted.
func limitProxyConnections(wanted, backends int, files uint64, log *slog.Logger) int {
	n := shareProxyFiles(wanted, backends, files)
	warnOfFewConnections(wanted, n, files, log)
	return n
}

// limitTCPConnections is limitProxyConnections for --tcp, where each connection has one to a backend as
// well, and each pipe has two files.
func limitTCPConnections(wanted, pipes int, files uint64, log *slog.Logger) int {
	n := shareProxyFiles(wanted, wanted, files-min(files, uint64(2*pipes)))
	warnOfFewConnections(wanted, n, files, log)
	return n
}

// warnOfFewConnections warns if n is less than wanted.
func warnOfFewConnections(wanted, n int, files uint64, log *slog.Logger) {
	if n < wanted {
		log.Warn("--max-connections is more than the limit of open files allows; raise LimitNOFILE= of systemd, ulimit -n, or nofile of the container, or lower --max-connections",
			"max_connections", wanted, "connections", n, "RLIMIT_NOFILE", files)
	}
}
