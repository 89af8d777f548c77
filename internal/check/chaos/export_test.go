//go:build linux

package chaos

import "testing"

// NewProxy returns a proxy for connections to target, and the address to dial instead, until the end of the test.
func NewProxy(t testing.TB, target string) (p *Proxy, addr string) {
	p = &Proxy{target: target, pipes: map[*pipe]struct{}{}}
	return p, (&front{dialers: map[string]*Proxy{"": p}}).listen(t)
}

// IsUsed reports whether a connection goes through p.
func (p *Proxy) IsUsed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pipes) > 0
}
