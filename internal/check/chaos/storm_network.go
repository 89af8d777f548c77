//go:build linux

package chaos

import (
	"fmt"
	"time"

	"github.com/isotone/isotone/internal/check/namespace"
)

// The longest faults of the network exceed the peers' stall timeout, 5 s.
const (
	linkFaultMin = 50 * time.Millisecond
	linkFaultMax = 7 * time.Second
	linkDelayMin = time.Millisecond
	linkDelayMax = 300 * time.Millisecond
)

// planLinks sets one or both directions of the connection between two nodes.
func (s *Storm) planLinks(f LinkFault, what string) *fault {
	p := s.c.Proxies[s.rand.IntN(len(s.c.Proxies))]
	links, note := []*Link{&p.Forth, &p.Back}, fmt.Sprintf("%d ⇄ %d", p.From, p.To)
	switch s.rand.IntN(3) {
	case 0:
		links, note = links[:1], fmt.Sprintf("%d → %d", p.From, p.To)
	case 1:
		links, note = links[1:], fmt.Sprintf("%d → %d", p.To, p.From)
	}
	lasts := s.between(linkFaultMin, linkFaultMax)
	set := func(f LinkFault) {
		for _, link := range links {
			link.Set(f)
		}
	}
	return &fault{
		about: []string{p.name()}, lasts: lasts, note: fmt.Sprintf("%s%s, for %v", note, what, lasts),
		begin: func() { set(f) },
		end: func() {
			if set(LinkFault{}); f.Drop {
				p.Cut()
			}
		},
	}
}

func (s *Storm) planDelay() *fault {
	delay := s.between(linkDelayMin, linkDelayMax)
	return s.planLinks(LinkFault{Delay: delay}, fmt.Sprintf(" by %v", delay))
}

func (s *Storm) planHold() *fault { return s.planLinks(LinkFault{Hold: true}, "") }

func (s *Storm) planDrop() *fault { return s.planLinks(LinkFault{Drop: true}, "") }

func (s *Storm) planThrottle() *fault {
	rate := 1000 << s.rand.IntN(7)
	return s.planLinks(LinkFault{BytesPerSecond: rate}, fmt.Sprintf(": %d bytes/s", rate))
}

// planCut ends the connections of one pair, or all connections of a node.
func (s *Storm) planCut() *fault {
	p := s.c.Proxies[s.rand.IntN(len(s.c.Proxies))]
	n := s.node()
	f := &fault{note: fmt.Sprintf("%d ⇄ %d", p.From, p.To), begin: p.Cut, end: func() {}}
	if s.rand.IntN(2) == 0 {
		f.note = "all of " + s.name(n)
		f.begin = func() {
			for _, p := range s.c.Proxies {
				if p.From == n.ID || p.To == n.ID {
					p.Cut()
				}
			}
		}
	}
	return f
}

// planRules sets rules for packets.
func (s *Storm) planRules(rules []namespace.Rule, note string) *fault {
	lasts := s.between(linkFaultMin, linkFaultMax)
	f := &fault{lasts: lasts, note: fmt.Sprintf("%s, for %v", note, lasts)}
	for _, r := range rules {
		f.about = append(f.about, r.String())
	}
	n := s.c.Nodes[0]
	f.begin = func() { n.do(n.network.Begin(rules...)) }
	f.end = func() { n.do(n.network.End(rules...)) }
	return f
}

// around returns rules for what a node gets from all others, and what it sends to them.
func (s *Storm) around(n *Node, p namespace.Packets) (in, out []namespace.Rule) {
	return namespace.Into(int(n.ID), len(s.c.Nodes), p), namespace.OutOf(int(n.ID), len(s.c.Nodes), p)
}

// planOneWay loses what one node sends to another, or to all, or what it gets from
// all.
func (s *Storm) planOneWay() *fault {
	n := s.node()
	in, out := s.around(n, namespace.Dropped())
	switch s.rand.IntN(4) {
	case 0:
		return s.planRules(in, fmt.Sprintf("all → %s", s.name(n)))
	case 1:
		return s.planRules(out, fmt.Sprintf("%s → all", s.name(n)))
	}
	i := s.rand.IntN(len(out))
	return s.planRules(out[i:i+1], fmt.Sprintf("%s → %s", s.name(n), s.name(s.c.Others(n)[i])))
}

// planCutOff drops everything between a node and all others.
func (s *Storm) planCutOff() *fault {
	n := s.node()
	in, out := s.around(n, namespace.Dropped())
	return s.planRules(append(in, out...), s.name(n))
}

func (s *Storm) planLoss() *fault {
	n := s.node()
	part := 0.05 + 0.55*s.rand.Float64()
	in, out := s.around(n, namespace.Lost(part))
	return s.planRules(append(in, out...), fmt.Sprintf("%.0f %% around %s", 100*part, s.name(n)))
}
