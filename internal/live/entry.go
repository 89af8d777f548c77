package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/isotone/isotone"
)

// entry is one document and its source.
type entry struct {
	name    string
	loader  loader
	cfg     *Config
	style   *style
	current atomic.Pointer[Document] // never nil; version 0 before the first load
	first   chan struct{}            // closed at the first load that succeeds

	loading sync.Mutex // held during a load
	mu      sync.Mutex // serialises stores to current
	loaded  time.Time  // when the last good load began
	began   time.Time  // of the load that is under way; zero: none is
	failing bool
	code    isotone.Code // of the latest load, if that failed, else empty
}

func newEntry(source Source, cfg *Config, style *style) *entry {
	e := &entry{name: source.name, loader: source.open(), cfg: cfg, style: style, first: make(chan struct{})}
	e.current.Store(&Document{content: &content{next: e.first}})
	return e
}

// run loads the document until ctx ends: at once, and then at each tick. There is
// never more than one load; ticks that pass during a slow one are lost.
func (e *entry) run(ctx context.Context) {
	defer e.loader.close()
	ticker := time.NewTicker(e.cfg.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		e.load(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (e *entry) load(ctx context.Context) {
	e.loading.Lock()
	defer e.loading.Unlock()
	began := time.Now()
	e.mu.Lock()
	e.began = began
	e.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	before := e.current.Load().content
	raw, err := e.loader.load(limited, e.cfg.SizeMax)
	var fresh *content
	if err == nil && (before.version == 0 || !bytes.Equal(raw, before.raw)) {
		if err = check(raw, e.cfg.SizeMax); err == nil {
			fresh = newContent(before.version+1, raw)
		}
	}
	if ctx.Err() != nil {
		return // ended by Close, not a failure of the source
	}
	code := "ok"
	switch {
	case err != nil:
		code = string(codeOf(err))
	case fresh == nil:
		code = "unchanged"
	}
	e.settle(fresh, began, err)
	if e.cfg.Observe.Loaded != nil {
		e.cfg.Observe.Loaded(e.name, code, time.Since(began))
	}
}

// settle publishes the outcome of a load; fresh is nil if the content is unchanged.
func (e *entry) settle(fresh *content, began time.Time, err error) {
	e.mu.Lock()
	e.began = time.Time{}
	changed := e.failing != (err != nil)
	first := e.loaded.IsZero() && err == nil
	e.failing, e.code = err != nil, ""
	if err == nil {
		e.loaded = began
	} else {
		e.code = codeOf(err)
	}
	before := e.current.Load().content
	if fresh != nil {
		e.current.Store(e.document(fresh, time.Now()))
	} else if changed {
		e.current.Store(e.document(before, time.Now()))
	}
	e.mu.Unlock()
	if fresh != nil {
		close(before.next)
	}
	switch {
	case changed:
		e.tell(err)
	case first:
		e.cfg.Log.Info("live document is loaded", "document", e.name, "source", e.loader.String())
	}
}

// failure returns the code of the latest load, if that failed, else "".
func (e *entry) failure() isotone.Code {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.code
}

// tell logs that the source has begun to fail, or has recovered.
func (e *entry) tell(err error) {
	if err != nil {
		meanwhile := "the last version is served, as stale"
		if e.current.Load().Version() == 0 {
			meanwhile = "requests for it are answered with 503"
		}
		e.cfg.Log.Warn("live document cannot be loaded", "document", e.name, "source", e.loader.String(), "err", err,
			"meanwhile", meanwhile, "next_try_in", e.cfg.Interval.String())
	} else {
		e.cfg.Log.Info("live document is loaded again", "document", e.name, "source", e.loader.String())
	}
	if e.cfg.Observe.Failing != nil {
		e.cfg.Observe.Failing(e.name, err != nil)
	}
}

// refresh updates the date and the age. It also detects a load that ignores its timeout,
// for instance from a lost file system.
func (e *entry) refresh() {
	now := time.Now()
	e.mu.Lock()
	hangs := !e.failing && !e.began.IsZero() && now.Sub(e.began) > e.cfg.Timeout+timeoutSlack
	e.failing = e.failing || hangs
	e.current.Store(e.document(e.current.Load().content, now))
	e.mu.Unlock()
	if hangs {
		e.tell(errHangs)
	}
}

// timeoutSlack is how long a load may run beyond its timeout.
const timeoutSlack = time.Second

var errHangs = isotone.Errorf(isotone.CodeDeadlineExceeded, "the load has not ended with its timeout")

// document returns the document with that content as it is to be read from now on.
func (e *entry) document(c *content, now time.Time) *Document {
	if c.version == 0 {
		return &Document{content: c}
	}
	age := int64(-1)
	if e.failing {
		age = int64(max(0, now.Sub(e.loaded)) / time.Second)
	}
	return newDocument(c, e.style, now, age)
}

// check reports why raw can be no document.
func check(raw []byte, sizeMax int) error {
	switch {
	case len(raw) > sizeMax:
		return errTooLarge(sizeMax)
	case len(raw) == 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "empty")
	case !utf8.Valid(raw):
		return isotone.Errorf(isotone.CodeInvalidArgument, "not UTF-8")
	case !json.Valid(raw):
		// Unmarshal again for the position of the fault.
		err := json.Unmarshal(raw, new(json.RawMessage))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return isotone.Errorf(isotone.CodeInvalidArgument, "not valid JSON: byte %d: %v", syntax.Offset, syntax)
		}
		return isotone.Errorf(isotone.CodeInvalidArgument, "not valid JSON")
	}
	return nil
}
