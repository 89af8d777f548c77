package check

import (
	"fmt"
	"slices"
	"strings"
)

// dependency is the kind of an edge.
type dependency uint8

const (
	ww dependency = iota
	wr
	rt
	rw
)

func (d dependency) String() string { return [...]string{"ww", "wr", "rt", "rw"}[d] }

type edge struct {
	from, to int
	kind     dependency
	key      string
}

// graph has the transactions as its first nodes, and auxiliary ones after them.
type graph struct {
	txns int
	out  [][]edge
}

func (g *graph) init(txns int) {
	g.txns = txns
	g.out = make([][]edge, txns)
}

func (g *graph) node() int {
	g.out = append(g.out, nil)
	return len(g.out) - 1
}

func (g *graph) add(from, to int, kind dependency, key string) {
	if from != to {
		g.out[from] = append(g.out[from], edge{from, to, kind, key})
	}
}

// state is a node and whether the edge by which a path came to it is rw.
type state struct {
	node    int
	afterRW bool
}

// path returns the edges of a shortest path from one state to another, at least one, in which no two
// rw follow each other.
func (g *graph) path(from, to state, allowed func(edge) bool) []edge {
	came := map[state]edge{}
	before := map[state]state{}
	queue := []state{from}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, e := range g.out[s.node] {
			if !allowed(e) || s.afterRW && e.kind == rw {
				continue
			}
			next := state{e.to, e.kind == rw}
			if _, ok := came[next]; ok {
				continue
			}
			came[next], before[next] = e, s
			if next == to {
				return walk(came, before, from, to)
			}
			queue = append(queue, next)
		}
	}
	return nil
}

func walk(came map[state]edge, before map[state]state, from, to state) (path []edge) {
	for s := to; ; {
		path = append(path, came[s])
		s = before[s]
		if s == from {
			slices.Reverse(path)
			return path
		}
	}
}

// states returns the graph of the states. A cycle in it is one without two rw in a row.
func (g *graph) states() *graph {
	number := func(s state) int {
		if s.afterRW {
			return 2*s.node + 1
		}
		return 2 * s.node
	}
	product := &graph{out: make([][]edge, 2*len(g.out))}
	for _, edges := range g.out {
		for _, e := range edges {
			to := number(state{e.to, e.kind == rw})
			product.add(number(state{e.from, false}), to, e.kind, e.key)
			if e.kind != rw {
				product.add(number(state{e.from, true}), to, e.kind, e.key)
			}
		}
	}
	return product
}

// components returns the number of the strongly connected component of each node, and for each
// component whether it has several nodes (Tarjan 1972, with a stack of its own).
func (g *graph) components() (of []int, large []bool) {
	n := len(g.out)
	of = make([]int, n)
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	var stack []int
	count := 0
	type frame struct{ node, edge int }
	for root := range n {
		if index[root] != 0 {
			continue
		}
		frames := []frame{{node: root}}
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.node
			if f.edge == 0 {
				count++
				index[v], low[v] = count, count
				stack = append(stack, v)
				onStack[v] = true
			}
			if f.edge < len(g.out[v]) {
				w := g.out[v][f.edge].to
				f.edge++
				if index[w] == 0 {
					frames = append(frames, frame{node: w})
				} else if onStack[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				parent := frames[len(frames)-1].node
				low[parent] = min(low[parent], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			first := slices.Index(stack, v)
			for _, w := range stack[first:] {
				of[w] = len(large)
				onStack[w] = false
			}
			large = append(large, len(stack)-first > 1)
			stack = stack[:first]
		}
	}
	return of, large
}

// findCycle looks for the cycles that snapshot isolation forbids, the worst first.
func (c *checker) findCycle() *Anomaly {
	g := &c.graph
	if _, large := g.states().components(); !slices.Contains(large, true) {
		return nil
	}
	of, _ := g.components()
	within := func(e edge) bool { return of[e.from] == of[e.to] }
	for _, search := range []struct {
		name  Name
		first dependency // the kind of one edge of the cycle
		rest  func(dependency) bool
	}{
		{G0, ww, func(d dependency) bool { return d == ww }},
		{G1c, wr, func(d dependency) bool { return d == ww || d == wr }},
		{GSingle, rw, func(d dependency) bool { return d == ww || d == wr }},
		{GNonadjacent, rw, func(d dependency) bool { return d != rt }},
		{RealTime, rt, func(dependency) bool { return true }},
	} {
		for _, edges := range g.out {
			for _, e := range edges {
				if e.kind != search.first || !within(e) {
					continue
				}
				// The cycle is e and a path back to where e begins.
				allowed := func(e edge) bool { return within(e) && search.rest(e.kind) }
				if cycle := g.cycle(e, allowed); cycle != nil {
					return c.cycleAnomaly(search.name, cycle)
				}
			}
		}
	}
	return nil
}

// cycle returns e and a path from its end to its begin, without two rw in a row, or nil.
func (g *graph) cycle(e edge, allowed func(edge) bool) []edge {
	from := state{e.to, e.kind == rw}
	path := g.path(from, state{e.from, false}, allowed)
	if path == nil && e.kind != rw {
		path = g.path(from, state{e.from, true}, allowed)
	}
	if path == nil {
		return nil
	}
	return append([]edge{e}, path...)
}

func (c *checker) cycleAnomaly(name Name, cycle []edge) *Anomaly {
	var txns []int
	var steps []string
	for i, e := range cycle {
		if e.from < c.graph.txns {
			txns = append(txns, e.from)
		}
		if e.to >= c.graph.txns || e.kind == rt && i > 0 && cycle[i-1].from >= c.graph.txns {
			continue
		}
		steps = append(steps, fmt.Sprintf("%s %v %s", e.kind, e.key, c.history[e.to].Name))
	}
	return c.anomaly(name, txns, "cycle: %s", strings.Join(steps, ", "))
}
