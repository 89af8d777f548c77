// Package live serves live documents: JSON values that are loaded periodically from a
// source, encoded once for each change, and served to many clients over HTTP, by GET or
// as a stream of server-sent events.
//
// It owns the sources (file, Redis key, URL, database, function), their schedule, the
// encodings, and the answers under /live/. It opens no port and does not interpret the
// documents. The HTTP fronts use [Set.Handler]; the fast path may send what
// [Document.Response] returns.
//
// All readers share the encoded bytes. Documents are immutable: a change makes a new
// [Document] and swaps one pointer.
//
// Sources: RFC 9110 (semantics), RFC 9111 (caching), the WHATWG standards HTML
// (server-sent events) and Fetch (CORS), and the Redis protocol specification.
package live

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// Bounds of [Config] (I7).
const (
	// DocumentsMax bounds the documents of a set: each has a goroutine and up to a
	// few times SizeMax of memory.
	DocumentsMax = 64
	// IntervalMin and IntervalMax bound Config.Interval.
	IntervalMin = 100 * time.Millisecond
	IntervalMax = time.Hour
	// SizeLimit bounds Config.SizeMax. Larger documents would exceed any network.
	SizeLimit = 64 << 20
)

// Config configures a [Set]. All fields are optional.
type Config struct {
	// Sources are the documents. See [Parse] and [Func].
	Sources []Source
	// Interval is the time from the beginning of one load to that of the next.
	// Default 1 s.
	Interval time.Duration
	// Timeout bounds one load. Default: Interval, but 1 s to 10 s.
	Timeout time.Duration
	// SizeMax bounds a document in bytes; of a larger source no more than this is
	// read. Default 8 MiB.
	SizeMax int
	// Origins are the web origins whose pages may read the documents (CORS), such as
	// "https://example.com"; "*" is all. Default: none. See [ParseOrigins].
	Origins []string
	// OriginAllowed, if not nil, allows further origins. Safe for concurrent use.
	OriginAllowed func(origin string) bool
	// StreamsMax bounds the open streams of all documents together; further requests get
	// "overloaded". Default 10000: some 250 MB with net/http.
	StreamsMax int
	// KeepAlive is the time without a change after which a stream sends a comment, so
	// that proxies keep it open and dead clients are noticed. Default 15 s.
	KeepAlive time.Duration
	// WriteTimeout bounds one write to a stream; a reader that takes longer is cut.
	// Default 10 s.
	WriteTimeout time.Duration
	// Log has one line when a source begins to fail and one when it recovers. Nil
	// discards them.
	Log *slog.Logger
	// Observe is called on events.
	Observe Observer
}

// Observer has functions to call on events. Each may be nil. They are called from several
// goroutines, and must not block.
type Observer struct {
	// Loaded is called after each load. The code is "ok" for a change, "unchanged",
	// or the isotone.Code of the failure.
	Loaded func(name, code string, took time.Duration)
	// Failing is called with true when a source begins to fail, and with false when
	// it has been loaded after that.
	Failing func(name string, failing bool)
	// Streams is called with 1 when a stream begins and with -1 when it ends.
	Streams func(name string, change int)
	// Cut is called when a stream ends because its reader was too slow.
	Cut func(name string)
}

// Set is the documents of a node. Make it with [New]. All methods are safe for
// concurrent use.
type Set struct {
	cfg        Config
	origins    origins
	entries    map[string]*entry // never changed
	streams    atomic.Int64
	closing    chan struct{}
	end        sync.Once
	stop       context.CancelFunc
	running    sync.WaitGroup
	retryAfter string // Retry-After until the first load
}

// New starts to load the documents and returns at once. Until its first successful load a
// document is "overloaded". The error names all faults of cfg.
func New(cfg Config) (*Set, error) {
	cfg = cfg.withDefaults()
	allowed, err := makeOrigins(cfg.Origins)
	if err = errors.Join(cfg.check(), err); err != nil {
		return nil, err
	}
	allowed.also = cfg.OriginAllowed
	ctx, stop := context.WithCancel(context.Background())
	s := &Set{
		cfg: cfg, origins: allowed, stop: stop,
		entries:    make(map[string]*entry, len(cfg.Sources)),
		closing:    make(chan struct{}),
		retryAfter: strconv.Itoa(int((cfg.Interval + time.Second - 1) / time.Second)),
	}
	style := newStyle(cfg.Interval, allowed)
	for _, source := range cfg.Sources {
		s.entries[source.name] = newEntry(source, &s.cfg, style)
	}
	for _, e := range s.entries {
		s.running.Go(func() { e.run(ctx) })
	}
	s.running.Go(func() { s.tick(ctx) })
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = min(max(c.Interval, time.Second), 10*time.Second)
	}
	if c.SizeMax == 0 {
		c.SizeMax = 8 << 20
	}
	if c.StreamsMax == 0 {
		c.StreamsMax = 10000
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// check returns all faults except those of Origins.
func (c *Config) check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, isotone.Errorf(isotone.CodeInvalidArgument, format, args...))
	}
	if c.Interval < IntervalMin || c.Interval > IntervalMax {
		fault("live: interval %v: want %v to %v", c.Interval, IntervalMin, IntervalMax)
	}
	if c.Timeout < 0 || c.KeepAlive < 0 || c.WriteTimeout < 0 || c.StreamsMax < 0 {
		fault("live: a timeout or limit is negative")
	}
	if c.SizeMax < 0 || c.SizeMax > SizeLimit {
		fault("live: a document of %d bytes: want at most %d", c.SizeMax, SizeLimit)
	}
	if len(c.Sources) > DocumentsMax {
		fault("live: %d documents: want at most %d", len(c.Sources), DocumentsMax)
	}
	seen := map[string]bool{}
	for _, source := range c.Sources {
		switch {
		case !isName(source.name) || source.open == nil:
			fault("live: document %.70q: want a name of %s, and a source", source.name, nameRule)
		case seen[source.name]:
			fault("live: document %q is given twice", source.name)
		}
		seen[source.name] = true
	}
	return errors.Join(faults...)
}

// tick updates the Date and Age of all documents at the beginning of each second, so that
// no request reads a clock.
func (s *Set) tick(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		timer.Reset(now.Truncate(time.Second).Add(time.Second).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		for _, e := range s.entries {
			e.refresh()
		}
	}
}

// Lookup returns the current document of that name, or nil if there is none or it has never
// been loaded; [Set.Handler] tells them apart. It costs a map access and an atomic load.
func (s *Set) Lookup(name string) *Document {
	e := s.entries[name]
	if e == nil {
		return nil
	}
	d := e.current.Load()
	if d.content.version == 0 {
		return nil
	}
	return d
}

// Loaded returns a channel that is closed when the document of that name has been loaded for the first
// time. The name must be one of the set's.
func (s *Set) Loaded(name string) <-chan struct{} { return s.entries[name].first }

// Reload loads the document of that name now, beside its schedule, after a load that is under way. It returns when that
// is done, so after two timeouts at most. The name must be one of the set's.
func (s *Set) Reload(ctx context.Context, name string) { s.entries[name].load(ctx) }

// Streams returns how many streams are open.
func (s *Set) Streams() int { return int(s.streams.Load()) }

// Handler returns the handler of all paths under /live/.
func (s *Set) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Close stops loading, ends all streams and closes the sources. It waits for loads to end
// with their context, but at most timeoutSlack for one that hangs, for instance in a lost
// file system. It does not wait for streams, which the server's shutdown does; the write
// of a slow reader ends after at most WriteTimeout. The last documents remain readable.
func (s *Set) Close() {
	s.end.Do(func() {
		close(s.closing)
		s.stop()
	})
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(timeoutSlack)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}
