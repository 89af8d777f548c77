package client

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// troubleMax bounds the nodes whose failures errors name.
const troubleMax = 8

// trouble is the latest failure of each node since the latest success, for the errors of calls:
// they name all that was tried. It is safe for concurrent use.
type trouble struct {
	mu   sync.Mutex
	list []failure // the latest one last; at most troubleMax
}

// failure is the latest failure of a node.
type failure struct {
	addr  string
	err   error
	times int // how often it failed
}

// note records a failure.
func (t *trouble) note(addr string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := failure{addr: addr}
	at := slices.IndexFunc(t.list, func(old failure) bool { return old.addr == addr })
	switch {
	case at >= 0:
		f = t.list[at]
		t.list = slices.Delete(t.list, at, at+1)
	case len(t.list) == troubleMax:
		t.list = slices.Delete(t.list, 0, 1)
	}
	f.err = err
	f.times++
	t.list = append(t.list, f)
}

// clear forgets all failures.
func (t *trouble) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = nil
}

// text returns the failures, to append to a message; "" if there are none.
func (t *trouble) text() string {
	t.mu.Lock()
	list := slices.Clone(t.list)
	t.mu.Unlock()
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "; %s: %v", f.addr, readable(f.err))
		if f.times > 1 {
			fmt.Fprintf(&b, " (%d times)", f.times)
		}
	}
	return b.String()
}
