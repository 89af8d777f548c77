package bench

import (
	"net"
	"slices"
	"sync"
)

// turnsMax bounds the changes of leader that a report lists; later ones are only
// counted.
const turnsMax = 1000

// route is where all lanes send their requests: the node that leads, as far as they
// know. A lane that was told of another leader changes it for all, and so does one that
// got no answer.
type route struct {
	mu      sync.Mutex
	targets []string
	addrs   []string // targets, then members and leaders that were heard of
	next    int      // in addrs, whom to try if nobody answers
	current string
	turns   []Turn
	changes uint64
	failure string // the latest
}

// Turn is a leader and when its first answer came.
type Turn struct {
	At   Seconds `json:"at_s"`
	Addr string  `json:"addr"`
}

func newRoute(targets []string) *route {
	r := &route{targets: targets, current: targets[0]}
	for _, addr := range targets {
		r.add(addr)
	}
	return r
}

// add makes an address known. The caller holds r.mu, or is alone.
func (r *route) add(addr string) {
	if !slices.Contains(r.addrs, addr) && len(r.addrs) < targetsMax {
		r.addrs = append(r.addrs, addr)
	}
}

// addr returns whom to ask.
func (r *route) addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// follow is for a lane that was sent from one node to another, or, if to is "", just
// away. It does nothing if the other lanes have left that node already.
func (r *route) follow(from, to, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = why
	if r.current != from {
		return
	}
	if to != "" && to != from && checkAddr(to) == nil {
		r.add(to)
		r.current = to
		return
	}
	for range r.addrs {
		r.next = (r.next + 1) % len(r.addrs)
		if r.addrs[r.next] != from {
			r.current = r.addrs[r.next]
			return
		}
	}
}

// note keeps a failure that is no reason to go elsewhere.
func (r *route) note(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = why
}

// confirm is for a lane that got timestamps from a node.
func (r *route) confirm(addr string, now Seconds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = addr
	if n := len(r.turns); n > 0 && r.turns[n-1].Addr == addr {
		return
	}
	r.changes++
	if len(r.turns) < turnsMax {
		r.turns = append(r.turns, Turn{At: now, Addr: addr})
	}
}

// elsewhere returns the leader, or, before one has answered, whom to ask first, unless it
// is a target; then "".
func (r *route) elsewhere() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr := r.current
	if n := len(r.turns); n > 0 {
		addr = r.turns[n-1].Addr
	}
	if slices.ContainsFunc(r.targets, func(target string) bool { return sameAddr(target, addr) }) {
		return ""
	}
	return addr
}

// sameAddr reports whether two addresses are the same, or both of this machine: a node
// that was asked for at 127.0.0.1 may name itself localhost.
func sameAddr(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return hostA == hostB && portA == portB || portA == portB && loopback(hostA) && loopback(hostB)
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// leaders returns who led, and the latest failure, if any.
func (r *route) leaders() (turns []Turn, failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.turns), r.failure
}
