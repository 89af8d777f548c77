package loop

import (
	"sync"
	"sync/atomic"
)

// posts are functions that other goroutines have left for the loop's.
type posts struct {
	some  atomic.Bool
	mu    sync.Mutex
	funcs []func()
	ended bool // nothing is accepted any more
}

// Post has f run on the loop's goroutine, in the next Wait, and reports whether it was
// accepted: a loop that is closed accepts nothing, and forgets what it has not run. Any
// goroutine may call it, and bounds how often.
func (l *Loop) Post(f func()) bool {
	l.posted.mu.Lock()
	ended := l.posted.ended
	if !ended {
		l.posted.funcs = append(l.posted.funcs, f)
	}
	l.posted.mu.Unlock()
	if ended {
		return false
	}
	l.posted.some.Store(true)
	l.Wake()
	return true
}

// runPosts runs what was posted.
func (l *Loop) runPosts() {
	if !l.posted.some.Swap(false) {
		return
	}
	for _, f := range l.posted.take(false) {
		if l.closed {
			return
		}
		f()
	}
}

// endPosts runs what was posted and accepts nothing more.
func (l *Loop) endPosts() {
	for {
		funcs := l.posted.take(true)
		if funcs == nil {
			return
		}
		for _, f := range funcs {
			f()
		}
	}
}

// take returns what was posted. With end set it accepts nothing more if that is nothing.
func (p *posts) take(end bool) []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	funcs := p.funcs
	p.funcs = nil
	p.ended = p.ended || end && funcs == nil
	return funcs
}

// Posted returns how many functions wait. Any goroutine may call it.
func (l *Loop) Posted() int {
	l.posted.mu.Lock()
	defer l.posted.mu.Unlock()
	return len(l.posted.funcs)
}
