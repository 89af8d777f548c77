package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/core/lincheck"
)

const (
	// connectTimeout bounds the wait of a region for the leader and for a valid reading. If the limits
	// are too short for the delays, there is none.
	connectTimeout = 20 * time.Second
	// transactionTimeout bounds a transaction. None takes nearly as long unless something is broken.
	transactionTimeout = 20 * time.Second
	// transactionsMax bounds those that are recorded: some 100 MB. A worker that has used its share ends.
	transactionsMax = 1 << 20
	// writeBytes is the size of a simulated write, and of its answer.
	writeBytes = 128
)

// kind is where a transaction has its timestamp from.
type kind int

const (
	fromOracle kind = iota
	fromClock
	kinds
)

// String returns "oracle" or "interval".
func (k kind) String() string { return [kinds]string{"oracle", "interval"}[k] }

// site is what the workers of a region share.
type site struct {
	oracle *client.Client
	clock  *client.Clock
	write  string // address that leads to the nearest other region
}

// close closes what was opened.
func (s *site) close() {
	if s.clock != nil {
		_ = s.clock.Close()
	}
	if s.oracle != nil {
		_ = s.oracle.Close()
	}
}

// openSite connects a region: to its own node directly, to the others and to the replica that is
// written to by delayed links.
func openSite(ctx context.Context, s settings, wires *network, c *cluster.Cluster, region int) (_ *site, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	to := map[string]string{}
	for other, n := range c.Nodes {
		to[n.Addr] = n.Addr
		if other != region {
			if to[n.Addr], err = wires.link(n.Addr, s.delays[region][other]); err != nil {
				return nil, err
			}
		}
	}
	replica, err := wires.echo()
	if err != nil {
		return nil, err
	}
	here := &site{}
	if here.write, err = wires.link(replica, s.delays[region][s.nearest(region)]); err != nil {
		return nil, err
	}
	var d net.Dialer
	here.oracle, err = client.NewWith(ctx, client.Options{
		Addrs: []string{c.Nodes[region].Addr},
		// A connection for each worker: none waits for the round trip of another.
		Conns: s.workers,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			by, ok := to[addr]
			if !ok {
				return nil, fmt.Errorf("no link leads to %s", addr)
			}
			return d.DialContext(ctx, network, by)
		},
	})
	if err == nil {
		here.clock, err = here.oracle.NewClock(ctx, client.ClockOptions{})
	}
	if err != nil {
		here.close()
		return nil, fmt.Errorf("region %s: %w", regionNames[region], err)
	}
	return here, nil
}

// load runs the workers of all regions, and returns what they have measured. Its error is the first
// one, or a violation of the order of timestamps.
func load(ctx context.Context, s settings, wires *network, c *cluster.Cluster) (results, error) {
	var sites [regions]*site
	for region := range sites {
		here, err := openSite(ctx, s, wires, c, region)
		if err != nil {
			return results{}, err
		}
		defer here.close()
		sites[region] = here
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var workers []*worker
	ended := make(chan struct{})
	for region, here := range sites {
		for k := range kinds {
			for range s.workers {
				w := &worker{
					id: uint64(len(workers)), kind: k, region: region, site: here,
					began: began, warm: s.warmup, end: s.warmup + s.duration, most: transactionsMax / (regions * int(kinds) * s.workers),
				}
				workers = append(workers, w)
			}
		}
	}
	for _, w := range workers {
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := w.run(ctx); err != nil {
				cancel(fmt.Errorf("region %s, %v: %w", regionNames[w.region], w.kind, err))
			}
		}()
	}
	for range workers {
		<-ended
	}
	if ctx.Err() != nil {
		return results{}, context.Cause(ctx)
	}
	return collect(s, workers)
}

// sample is what is measured of a transaction.
type sample struct {
	took   time.Duration // all of it
	write  time.Duration // the write alone
	width  time.Duration // of the interval that the timestamp was made of; 0: none
	beyond time.Duration // how much longer than the write the wait has lasted
}

// worker runs transactions one after the other.
type worker struct {
	id     uint64
	kind   kind
	region int
	site   *site
	began  time.Time     // of all workers: times of operations are since then
	warm   time.Duration // what begins before is not measured
	end    time.Duration // nothing begins after
	most   int           // transactions

	conn    net.Conn // to the replica
	buf     [writeBytes]byte
	samples []sample
	history []lincheck.Operation
}

// run runs transactions until the end, or until ctx is done.
func (w *worker) run(ctx context.Context) (err error) {
	var d net.Dialer
	if w.conn, err = d.DialContext(ctx, "tcp", w.site.write); err != nil {
		return err
	}
	defer w.conn.Close()
	defer context.AfterFunc(ctx, func() { _ = w.conn.Close() })()
	for len(w.history) < w.most {
		from := time.Since(w.began)
		if from > w.end {
			return nil
		}
		got, ts, err := w.transaction(ctx)
		if err != nil {
			return err
		}
		to := time.Since(w.began)
		w.history = append(w.history, lincheck.Operation{
			Client: w.id, Invocation: int64(from), Completion: int64(to), Answered: true,
			Range: isotone.Range{First: ts, Count: 1},
		})
		if got.took = to - from; from >= w.warm {
			w.samples = append(w.samples, got)
		}
	}
	return nil
}

// transaction takes a timestamp and writes. It returns when the transaction is complete.
func (w *worker) transaction(ctx context.Context) (got sample, ts isotone.Timestamp, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	if w.kind == fromOracle {
		if ts, err = w.site.oracle.Timestamp(ctx); err == nil {
			got.write, err = w.write(ctx)
		}
		return got, ts, err
	}
	if ts, err = w.site.clock.Timestamp(ctx); err != nil {
		return got, ts, err
	}
	if now, err := w.site.clock.Now(); err == nil {
		got.width = now.Width()
	}
	waited := make(chan error, 1)
	began := time.Now()
	var wait time.Duration
	go func() {
		err := w.site.clock.Wait(ctx, ts)
		wait = time.Since(began)
		waited <- err
	}()
	got.write, err = w.write(ctx)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-waited)
	got.beyond = max(0, wait-got.write)
	return got, ts, err
}

// write writes to a replica in the nearest other region, and waits for its answer.
func (w *worker) write(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	if by, ok := ctx.Deadline(); ok {
		err = w.conn.SetDeadline(by)
	}
	if err == nil {
		_, err = w.conn.Write(w.buf[:])
	}
	if err == nil {
		_, err = io.ReadFull(w.conn, w.buf[:])
	}
	return time.Since(began), err
}

// results is what was measured.
type results struct {
	regions      [regions]figures
	transactions int // all of them, checked
}

// figures are those of a region.
type figures struct {
	leader    time.Duration // round trip to the leader's region
	write     time.Duration // median of the write alone
	latencies [kinds][]time.Duration
	width     []time.Duration
	beyond    []time.Duration
}

// collect sorts what the workers have measured, and checks the order of all timestamps. Its error is a
// violation, or says that too little was measured.
func collect(s settings, workers []*worker) (r results, err error) {
	var history []lincheck.Operation
	var writes [regions][]time.Duration
	for _, w := range workers {
		history = append(history, w.history...)
		f := &r.regions[w.region]
		for _, got := range w.samples {
			f.latencies[w.kind] = append(f.latencies[w.kind], got.took)
			writes[w.region] = append(writes[w.region], got.write)
			if w.kind == fromClock {
				f.width, f.beyond = append(f.width, got.width), append(f.beyond, got.beyond)
			}
		}
	}
	r.transactions = len(history)
	for i := range r.regions {
		f := &r.regions[i]
		f.leader = 2 * s.delays[i][0]
		for _, list := range [][]time.Duration{f.latencies[fromOracle], f.latencies[fromClock], f.width, f.beyond, writes[i]} {
			if len(list) == 0 {
				return r, fmt.Errorf("region %s has completed no transaction that began after the warm-up: measure for longer", regionNames[i])
			}
			slices.Sort(list)
		}
		f.write = quantile(writes[i], 0.5)
	}
	if err := lincheck.Check(history); err != nil {
		return r, fmt.Errorf("the order of timestamps is violated: %w", err)
	}
	return r, nil
}

// quantile returns the time below which the part q of sorted times lies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	at := int(q * float64(len(sorted)))
	return sorted[min(at, len(sorted)-1)]
}
