// Package demolive shows live documents at work: the votes of a made-up election change each second, one node serves
// them to thousands of readers, and every event is checked.
//
// It owns the node's process, the document, the readers, what is measured, and how that is drawn; the command line is in
// "isotone demo live". It must know no more of a node than an operator does: settings, the HTTP interface, metrics.
//
// [Run] writes a document (votes.go) to a file or to Redis (store.go) once a second. The readers (crowd.go) follow it as
// server-sent events, without TLS and then with it, and a tally compares what each of them gets with what was written. What
// is drawn depends on a [Result] alone, or on [Now] while it runs.
package demolive

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/cluster"
)

const (
	// second is the time between two writes, and the interval of the node.
	second = time.Second
	// settleTimeout bounds the wait for the last document of a phase, and for streams to end.
	settleTimeout = 20 * time.Second
)

// Now is what a run shows while it goes on. The receiver does not change it.
type Now struct {
	TLS       bool
	Readers   int
	Connected int     // of Readers
	Votes     Votes   // as written last
	Second    *Second // nil while readers connect
}

// run is a run under way.
type run struct {
	*Options
	began  time.Time
	count  *count
	store  store
	nodes  *cluster.Cluster
	roots  *x509.CertPool
	result *Result
	latest []byte // the document
}

// Run starts a node, has readers follow a document of it, and returns what they saw; see [Result.Err]. If ctx is done, it
// returns what was measured until then. An error of Run means that the run itself failed. When it returns, the node has
// ended, and its files and the key in Redis are removed.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "isotone-live-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &run{Options: &o, count: newCount(int(o.Duration/second)+1, uint64(time.Now().UnixNano()))}
	source := filepath.Join(dir, "votes.json")
	r.store = file(source)
	if source = "file:" + source; o.Redis != "" {
		source = o.Redis
		if r.store, err = openRedis(ctx, source); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, r.store.close()) }()
	if err := r.write(nil); err != nil {
		return nil, err
	}
	page, err := listenPage()
	if err != nil {
		return nil, err
	}
	defer page.close()
	r.nodes, err = cluster.New(1, dir, o.Command, "LIVE=votes="+source, fmt.Sprintf("LIVE_INTERVAL_MS=%d", second.Milliseconds()), "LIVE_ORIGINS="+page.origin())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.nodes.Kill()) }()
	if err := r.start(ctx, page, filepath.Join(dir, "node1")); err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// start starts the node, and serves the page with the certificate that the node has made.
func (r *run) start(ctx context.Context, page *page, data string) error {
	if err := r.nodes.Start(); err != nil {
		return err
	}
	if err := r.nodes.WaitReady(ctx); err != nil {
		return err
	}
	cert, key := filepath.Join(data, "cert.pem"), filepath.Join(data, "key.pem")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	r.roots = x509.NewCertPool()
	r.roots.AddCert(pair.Leaf)
	page.serve(pair, "https://"+r.nodes.Nodes[0].Addr)
	if r.Opened != nil {
		r.Opened(page.origin() + "/")
	}
	return nil
}

// write writes the next document, of which a tally, if there is one, knows before.
func (r *run) write(t *tally) error {
	data, err := r.count.next(time.Now())
	if err != nil {
		return err
	}
	if t != nil {
		t.wrote(data)
	}
	r.latest = data
	return r.store.write(data)
}

// run runs the phases, and returns the result.
func (r *run) run(ctx context.Context) (*Result, error) {
	r.began = time.Now()
	r.result = r.newResult()
	phases := r.TLS.phases()
	for _, secure := range phases {
		length := max(second, r.Duration/time.Duration(len(phases)))
		if err := r.phase(ctx, secure, length); err != nil && ctx.Err() == nil {
			return nil, err
		}
		if ctx.Err() != nil || r.result.Verdict.Violations > 0 {
			break
		}
	}
	r.result.Result.Interrupted = ctx.Err() != nil
	r.result.Result.Elapsed = bench.Seconds(time.Since(r.began).Round(time.Millisecond).Seconds())
	return r.result, nil
}

// newResult returns a result without phases.
func (r *run) newResult() *Result {
	load := bench.Load{
		Targets: r.nodes.Addrs(), Protocol: "sse", Connections: r.readers(), Pipeline: 1,
		Duration: bench.Seconds(r.Duration.Seconds()), Timeout: bench.Seconds(connectTimeout.Seconds()),
	}
	source := "file"
	if r.Redis != "" {
		source = "redis"
	}
	result := &Result{Head: bench.NewHead(Schema, r.began, runtime.GOMAXPROCS(0)), Settings: Settings{Load: load, Source: source, Bytes: len(r.latest)}}
	result.Isotone, result.Result.Errors, result.Verdict.OK = r.Version, bench.Errors{}, true
	return result
}

// phase connects the readers, has the votes change for a time, and adds what was measured to the result.
func (r *run) phase(ctx context.Context, secure bool, length time.Duration) error {
	if err := r.noStreams(ctx); err != nil {
		return err
	}
	t := newTally(r.readers(), r.count.votes.Version, r.latest)
	c := &crowd{addr: r.nodes.Nodes[0].Addr, tally: t}
	if secure {
		c.tls = &tls.Config{RootCAs: r.roots, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}
	}
	defer c.close()
	p := Phase{TLS: secure}
	if err := r.join(ctx, c, &p); err != nil {
		return err
	}
	before, err := r.measure()
	if err != nil {
		return err
	}
	complete, err := r.change(ctx, t, &p, before, length)
	if err != nil {
		return err
	}
	if complete {
		settling, cancel := context.WithTimeout(ctx, settleTimeout)
		t.wait(settling, func() {})
		cancel()
		complete = ctx.Err() == nil
	}
	after, err := r.measure()
	if err != nil {
		return err
	}
	t.fill(&p, complete)
	p.measured(before, after)
	r.result.add(p, t)
	return nil
}

// join connects the readers and waits until all have the document.
func (r *run) join(ctx context.Context, c *crowd, p *Phase) error {
	limited, cancel := context.WithTimeoutCause(ctx, joinTimeout, fmt.Errorf("not all readers are connected after %v", joinTimeout))
	defer cancel()
	before, err := r.measure()
	if err != nil {
		return err
	}
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		c.join(limited, c.tally.readers)
	}()
	c.tally.wait(limited, func() { r.show(p.TLS, c.tally, nil) })
	if c.tally.have() < c.tally.readers {
		cancel()
	}
	<-joined
	if wrong, first := c.tally.faults(); wrong > 0 && ctx.Err() == nil {
		return errors.Join(errors.New(first), r.ended())
	}
	if c.tally.have() < c.tally.readers {
		return context.Cause(limited)
	}
	after, err := r.measure()
	if err != nil {
		return err
	}
	p.Readers = c.tally.readers
	p.Connect.Seconds = round(after.at.Sub(before.at).Seconds())
	p.Connect.CPUEach = round((after.cpu - before.cpu) * 1e6 / float64(p.Readers))
	r.show(p.TLS, c.tally, nil)
	return nil
}

// change writes a document each second, and shows what became of it. It reports whether it came to its end.
func (r *run) change(ctx context.Context, t *tally, p *Phase, last reading, length time.Duration) (complete bool, err error) {
	ticker := time.NewTicker(second)
	defer ticker.Stop()
	events := t.events()
	for range int(length / second) {
		if err := r.write(t); err != nil {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
		if err := r.ended(); err != nil {
			return false, err
		}
		now, err := r.measure()
		if err != nil {
			return false, err
		}
		first, all := t.lag()
		s := Second{
			AtS: round(time.Since(r.began).Seconds()), TLS: p.TLS, Version: r.count.votes.Version, Events: t.events() - events,
			Loads: uint64(now.loads - last.loads), FirstMS: millis(first), LastMS: millis(all), CPU: now.percentSince(last),
		}
		events += s.Events
		last = now
		r.result.Result.Seconds = append(r.result.Result.Seconds, s)
		r.show(p.TLS, t, &s)
		if wrong, _ := t.faults(); wrong > 0 {
			return false, nil
		}
	}
	return true, nil
}

// ended returns an error if the node has ended.
func (r *run) ended() error {
	if n := r.nodes.Nodes[0]; !n.Running() {
		return n.Fault()
	}
	return nil
}

// show calls Options.Show.
func (r *run) show(secure bool, t *tally, s *Second) {
	if r.Show == nil {
		return
	}
	now := Now{TLS: secure, Readers: t.readers, Connected: t.readers, Votes: r.count.votes, Second: s}
	if s == nil {
		now.Connected = t.have()
	}
	r.Show(now)
}
