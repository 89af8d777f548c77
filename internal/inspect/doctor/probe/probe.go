// Package probe takes the measurements that internal/inspect/doctor judges: of this machine, and of the
// nodes of a cluster over their client addresses.
//
// It changes nothing, with one exception: a temporary file in the data directory, which it
// removes. It never opens the files of a node. [Run] may be called from any goroutine, and
// returns within a few seconds whatever hangs.
package probe

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/inspect/doctor"
)

const (
	// Timeout bounds each connection, each lookup and the measurement of the disk; see answerTimeout for requests.
	Timeout = 2 * time.Second
	// writesMax is how many writes are synced to measure the disk.
	writesMax = 200
)

// answerTimeout bounds the answer of a node: Timeout, or a fifth of the time that ctx leaves if that is more.
func answerTimeout(ctx context.Context) time.Duration {
	until, bounded := ctx.Deadline()
	if !bounded {
		return Timeout
	}
	return max(Timeout, (time.Until(until) / 5).Round(time.Second))
}

// Config says what to measure.
type Config struct {
	// Local is nil on a machine that is to run no node.
	Local *Local
	// Endpoints are client addresses of nodes, as survey.Address takes them. If none are
	// named, those of Local are tried.
	Endpoints []string
	// Secure: the addresses of Local are asked by https.
	Secure bool
	// Client sends all requests. Required.
	Client *http.Client
}

// Local describes the machine of a node.
type Local struct {
	Settings doctor.Settings
	// DataFile is the name of the data file in Settings.DataDir.
	DataFile string
	// Listen are the addresses that the node listens on; HTTP is the client address, where it
	// answers.
	Listen []Listen
	HTTP   string
	// CertFile and KeyFile are set if CertSet, else where they are created. CAFile may be empty.
	CertFile, KeyFile, CAFile string
	CertSet                   bool
	// Trust is what the files about users and peers say.
	Trust *doctor.Trust
}

// Listen is an address to listen on.
type Listen struct {
	Setting, Network, Addr string
	Optional               bool
}

// Run measures. It returns early, with what it has, when ctx ends.
func Run(ctx context.Context, c Config) (*doctor.Measurements, error) {
	m := &doctor.Measurements{At: time.Now(), Endpoints: c.Endpoints}
	endpoints := c.Endpoints
	var all sync.WaitGroup
	if c.Local != nil {
		m.Local = &doctor.Local{Settings: c.Local.Settings, Trust: c.Local.Trust}
		all.Go(func() { measureLocal(ctx, c.Client, c.Local, m.Local) })
		if len(endpoints) == 0 {
			endpoints = append([]string{c.Local.HTTP}, c.Local.Settings.Join...)
		}
		for i := range endpoints {
			if c.Secure && !strings.Contains(endpoints[i], "://") {
				endpoints[i] = "https://" + endpoints[i]
			}
		}
	}
	cluster, why, err := probeCluster(ctx, c.Client, endpoints)
	all.Wait()
	if err != nil {
		return nil, err
	}
	m.Cluster, m.Unanswered, m.Refused = cluster.found, why, cluster.refused
	if m.Local != nil && cluster.found != nil {
		m.Local.Clock.Ahead, m.Local.Clock.AheadKnown = cluster.ahead, cluster.aheadKnown
	}
	return m, nil
}
