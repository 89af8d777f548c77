package demoscale

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// directory has the workers that have said within a lease that they are there. Times are those of
// a monotonic clock.
type directory struct {
	lease time.Duration
	names map[string]entry
}

type entry struct {
	addr  string
	until time.Duration
}

// here registers a worker, or renews its lease.
func (d *directory) here(now time.Duration, name, addr string) {
	d.names[name] = entry{addr, now + d.lease}
}

// list returns NAME=ADDR of all whose lease has not ended, in order. It forgets the others.
func (d *directory) list(now time.Duration) (list []string) {
	for name, e := range d.names {
		if now >= e.until {
			delete(d.names, name)
			continue
		}
		list = append(list, name+"="+e.addr)
	}
	slices.Sort(list)
	return list
}

// nameService is a directory that is asked over TCP.
type nameService struct {
	*lineServer
	mu        sync.Mutex
	directory directory
	lookups   int
}

func startNameService(lease time.Duration) (*nameService, error) {
	n := &nameService{directory: directory{lease: lease, names: map[string]entry{}}}
	began := time.Now()
	var err error
	n.lineServer, err = serveLines("127.0.0.1:0", func(_ context.Context, line string) (string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && words[0] == "LIST":
			n.lookups++
			return "OK " + strings.Join(n.directory.list(time.Since(began)), " "), nil
		case len(words) == 3 && words[0] == "HERE" && len(n.directory.names) <= workersMax:
			n.directory.here(time.Since(began), words[1], words[2])
			return "OK", nil
		}
		return "ERR want LIST, or HERE NAME ADDR", nil
	})
	return n, err
}

// count returns the number of lookups since it was called before.
func (n *nameService) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := n.lookups
	n.lookups = 0
	return count
}

// place is where a worker is.
type place struct{ name, addr string }

// lookUp asks a name service for all workers.
func lookUp(ctx context.Context, service string) ([]place, error) {
	text, err := askOnce(ctx, service, "LIST")
	if err != nil {
		return nil, err
	}
	var list []place
	for _, field := range strings.Fields(text) {
		name, addr, ok := strings.Cut(field, "=")
		if !ok {
			return nil, errors.New("the name service answers what is no list")
		}
		list = append(list, place{name, addr})
	}
	return list, nil
}

// keepNamed registers a worker until ctx ends, three times in each lease. A name service that does
// not answer is asked again.
func keepNamed(ctx context.Context, service string, p place, lease time.Duration) {
	ticks := time.NewTicker(lease / 3)
	defer ticks.Stop()
	for {
		_, _ = askOnce(ctx, service, "HERE "+p.name+" "+p.addr)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
