// Package search looks at every state that the specification permits in a small cluster: three nodes, some terms, rounds and requests. What the rules
// permit must keep what they are for: no timestamp is issued twice, and each is above all that were answered before its request came. Without any one of them that
// fails, so each is needed.
//
// Raft is a part of the model, and not of the specification: candidates with logs that are good enough, majorities of votes and of acknowledgements. README.md says what
// may happen, and what is left out.
package search

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// promises are the rules that say what the others are for. The search does not go by them.
var promises = []string{"order", "leader", "log"}

// Result is what a search has found.
type Result struct {
	// States were reached, and Depth is how many actions the longest of all shortest ways to them has. It is Complete if there are no others.
	States, Depth int
	Complete      bool
	// Broken is the promise that is broken at the end of Way, "" if none is.
	Broken string
	Way    []string
	// Reached counts the states after each action.
	Reached map[string]int
}

// found is a state that was reached, and how.
type found struct {
	before *found
	action string
	code   []byte // until it is expanded
	broken string // the promise that is broken in it
}

var seed = maphash.MakeSeed()

// Search looks at all states of a size, those with the shortest ways first, until a promise is broken or limit states were reached. The rules
// without are not in force.
func Search(size Size, limit int, without ...string) Result {
	ignored := slices.Concat(promises, without)
	first := &found{code: encode(reflect.ValueOf(initial(ignored)).Elem())}
	r := Result{States: 1, Complete: true, Reached: map[string]int{}}
	seen := map[uint64]struct{}{maphash.Bytes(seed, first.code): {}}
	for layer := []*found{first}; len(layer) > 0; r.Depth++ {
		var next []*found
		for _, list := range expand(layer, &size, ignored) {
			for _, s := range list {
				if s.broken != "" {
					r.Broken, r.Way, r.Complete = s.broken, s.way(), false
					r.Depth++
					return r
				}
				key := maphash.Bytes(seed, s.code)
				if _, ok := seen[key]; ok {
					continue
				}
				seen[key] = struct{}{}
				r.Reached[s.action]++
				next = append(next, s)
			}
		}
		if r.States += len(next); r.States > limit {
			r.Complete = false
			return r
		}
		layer = next
	}
	return r
}

// way returns the actions up to a state.
func (f *found) way() (list []string) {
	for ; f.before != nil; f = f.before {
		list = append(list, f.action)
	}
	slices.Reverse(list)
	return list
}

// expand returns what follows from each state.
func expand(layer []*found, size *Size, ignored []string) [][]*found {
	lists := make([][]*found, len(layer))
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(layer); i += workers {
				lists[i] = layer[i].successors(size, ignored)
				layer[i].code = nil
			}
		})
	}
	wg.Wait()
	return lists
}

// successors returns what follows from a state by one action, or what did until a promise broke.
func (f *found) successors(size *Size, ignored []string) (list []*found) {
	for _, a := range f.state(ignored).actions(size) {
		m := move{state: f.state(ignored)}
		a.do(&m)
		switch {
		case m.refused:
		case m.broken != "":
			return append(list, &found{before: f, action: a.name, broken: m.broken})
		default:
			list = append(list, &found{before: f, action: a.name, code: encode(reflect.ValueOf(m.state).Elem())})
		}
	}
	return list
}

// state decodes a state that is not expanded.
func (f *found) state(ignored []string) *state {
	s := &state{}
	d := decoder{f.code}
	d.decode(reflect.ValueOf(s).Elem())
	if len(d.b) != 0 {
		panic(fmt.Sprintf("%d bytes of a state are left", len(d.b)))
	}
	s.Spec.Ignored = ignored
	return s
}

// writable returns a field of the specification's state that can be set although it is not exported.
func writable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}
