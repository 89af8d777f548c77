package bench

import (
	"net"
	"slices"
	"sync"
)

// turnsMax bounds the leaders that a report lists; later ones are only counted.
const turnsMax = 1000

// route is the node to which all callers send their requests: the leader, as far as is known.
// A caller that learns of another leader, or gets no answer, changes it for all.
type route struct {
	mu      sync.Mutex
	targets []string
	addrs   []string // targets, then members and leaders learned from nodes
	next    int      // index in addrs of the node last tried for lack of an answer
	current string
	turns   []Turn
	changes uint64
	failure string // the latest
}

// Turn is a leader and the time of its first answer.
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

// add adds a node's address. r.mu must be held, or r not be shared yet.
func (r *route) add(addr string) {
	if !slices.Contains(r.addrs, addr) && len(r.addrs) < targetsMax {
		r.addrs = append(r.addrs, addr)
	}
}

// addr returns the node to ask.
func (r *route) addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// follow changes the route from one node to another or, if to is "", to any other. It only
// records the failure if another caller has changed the route already.
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

// note records a failure that is no reason to change the route.
func (r *route) note(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = why
}

// confirm records that a node has issued timestamps, for a request that was sent at a time. An answer
// to one that was sent before another leader first answered is late, and says nothing.
func (r *route) confirm(addr string, sent, now Seconds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.turns); n > 0 && r.turns[n-1].Addr != addr && sent < r.turns[n-1].At {
		return
	}
	r.current = addr
	if n := len(r.turns); n > 0 && r.turns[n-1].Addr == addr {
		return
	}
	r.changes++
	if len(r.turns) < turnsMax {
		r.turns = append(r.turns, Turn{At: now, Addr: addr})
	}
}

// elsewhere returns the leader or, before one has answered, the node to ask first. It returns
// "" if that is a target.
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

// sameAddr reports whether two addresses are equal, or both are loopback addresses with the
// same port: a node at 127.0.0.1 may advertise localhost.
func sameAddr(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return hostA == hostB && portA == portB || portA == portB && loopback(hostA) && loopback(hostB)
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// leaders returns the leaders in the order of their turns, and the latest failure, if any.
func (r *route) leaders() (turns []Turn, failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.turns), r.failure
}
