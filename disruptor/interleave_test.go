package disruptor

import (
	"fmt"
	"testing"
)

// This file explores every interleaving of a small model of the protocol between
// Commit, notify, fire, prepare, park and cancel, one atomic operation of the code at
// a time. Each range is committed once, and every consumer runs until it has all of
// them. A goroutine that is stuck means a lost wake-up, a lost mark or a surplus token.
// Deliberate flaws show that the walk detects such errors.

type flaw int

const (
	none              flaw = iota
	flagsBeforeValue       // Commit loads flags before it publishes
	watchBeforeState       // a sleeper sets watched before its state
	noSecondLook           // a sleeper does not load value again
	clearAfterFire         // notify clears watched after it has woken all
	noSweepAfterMark       // Commit sets a mark and returns
	countAfterSweep        // Commit counts its mark after the sweep
	cancelWithoutTake      // cancel leaves the token
)

const (
	producersMax = 3
	consumersMax = 2
	rangesMax    = 4
)

// world is the shared state and the program counters of all goroutines.
type world struct {
	published int8
	marks     [rangesMax + 1]int8
	count     int8 // of marks
	watched   bool
	state     [consumersMax]bool // parked
	token     [consumersMax]int8
	cancels   int8 // how many sleeps may still be cancelled

	producer [producersMax]struct {
		pc, done   int8 // done counts the ranges of its own that are committed
		at, mark   int8
		who        int8
		marked     bool
		sawNoFlags bool // for flagsBeforeValue
	}
	consumer [consumersMax]struct{ pc, next int8 }
}

// walk is one configuration: the ranges [n, n+1) that each producer commits, in order.
type walk struct {
	flaw      flaw
	ranges    [][]int8
	consumers int
	cancels   int8
	end       int8
	fault     string
}

const ended = -1

// moveProducer performs one atomic operation of producer i.
func (k *walk) moveProducer(w *world, i int) bool {
	p := &w.producer[i]
	if int(p.done) == len(k.ranges[i]) {
		return false
	}
	lo := k.ranges[i][p.done]
	switch p.pc {
	case 0:
		if k.flaw == flagsBeforeValue && !p.sawNoFlags {
			p.sawNoFlags = w.count == 0 && !w.watched
			if p.sawNoFlags {
				return true
			}
		}
		p.pc = 2
		if w.published == lo {
			w.published, p.pc = lo+1, 1
			if p.sawNoFlags {
				k.finish(w, i)
			}
		}
	case 1:
		if p.pc = 2; w.count == 0 && !w.watched {
			k.finish(w, i)
		}
	case 2:
		if p.pc = 5; w.published <= lo {
			p.marked, p.pc = true, 3
		}
	case 3:
		if k.flaw != countAfterSweep {
			w.count++
		}
		p.pc = 4
	case 4:
		w.marks[lo] = lo + 1
		if p.pc = 5; k.flaw == noSweepAfterMark {
			p.pc = 8
		}
	case 5:
		p.at, p.pc = w.published, 6
	case 6:
		p.mark, p.pc = w.marks[p.at], 7
		if p.mark <= p.at {
			p.pc = 8
			if k.flaw == countAfterSweep && p.marked {
				w.count++
			}
		}
	case 7:
		if p.pc = 5; w.published == p.at {
			w.published, p.pc = p.mark, 13
		}
	case 8:
		if p.pc = 9; !w.watched {
			k.finish(w, i)
		}
	case 9:
		if k.flaw != clearAfterFire {
			w.watched = false
		}
		p.pc = 10
	case 10: // fire: check the state of one watcher after another
		if p.who == int8(k.consumers) {
			if k.flaw == clearAfterFire {
				w.watched = false
			}
			k.finish(w, i)
		} else if w.state[p.who] {
			p.pc = 11
		} else {
			p.who++
		}
	case 11:
		if p.pc = 12; !w.state[p.who] {
			p.who, p.pc = p.who+1, 10
		}
		if p.pc == 12 {
			w.state[p.who] = false
		}
	case 12:
		if w.token[p.who] > 0 {
			k.fault = "fire would block"
		}
		w.token[p.who]++
		p.who, p.pc = p.who+1, 10
	case 13:
		w.count--
		p.pc = 5
	}
	return true
}

func (k *walk) finish(w *world, i int) {
	done := w.producer[i].done
	w.producer[i] = world{}.producer[i]
	w.producer[i].done = done + 1
}

// moveConsumer performs one atomic operation of consumer i. If it sleeps, cancel ends
// the sleep from outside.
func (k *walk) moveConsumer(w *world, i int, cancel bool) bool {
	c := &w.consumer[i]
	if cancel && c.pc != 4 {
		return false
	}
	switch c.pc {
	case ended:
		return false
	case 0: // Poll
		if c.pc = 1; w.published > c.next {
			if c.next, c.pc = w.published, 0; c.next == k.end {
				c.pc = ended
			}
		}
	case 1:
		if k.flaw == watchBeforeState {
			w.watched = true
		} else {
			w.state[i] = true
		}
		c.pc = 2
	case 2:
		if k.flaw == watchBeforeState {
			w.state[i] = true
		} else {
			w.watched = true
		}
		if c.pc = 3; k.flaw == noSecondLook {
			c.pc = 4
		}
	case 3:
		if c.pc = 4; w.published > c.next {
			c.pc = 5
		}
	case 4: // park
		switch {
		case cancel:
			w.cancels--
			c.pc = 5
		case w.token[i] == 0:
			return false
		default:
			w.token[i]--
			c.pc = 0
		}
	case 5: // cancel
		if c.pc = 0; !w.state[i] {
			if c.pc = 6; k.flaw == cancelWithoutTake {
				c.pc = 0
			}
		}
		w.state[i] = false
	case 6:
		if w.token[i] == 0 {
			return false
		}
		w.token[i]--
		c.pc = 0
	}
	return true
}

// run visits all reachable states, and returns their number and a fault in one of them.
func (k *walk) run() (states int, fault string) {
	for _, list := range k.ranges {
		k.end += int8(len(list))
	}
	begin := world{cancels: k.cancels}
	seen := map[world]bool{begin: true}
	for todo := []world{begin}; len(todo) > 0 && k.fault == ""; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		stuck := true
		visit := func(next world, moved bool) {
			if moved {
				stuck = false
				if !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
		for i := range k.ranges {
			next := w
			moved := k.moveProducer(&next, i)
			visit(next, moved)
		}
		for i := range k.consumers {
			next := w
			moved := k.moveConsumer(&next, i, false)
			visit(next, moved)
			if w.cancels > 0 {
				next = w
				moved = k.moveConsumer(&next, i, true)
				visit(next, moved)
			}
		}
		if stuck {
			k.checkEnd(&w)
		}
	}
	return len(seen), k.fault
}

func (k *walk) checkEnd(w *world) {
	for i := range k.consumers {
		if w.consumer[i].pc != ended {
			k.fault = fmt.Sprintf("consumer %d sleeps at %d, published is %d", i, w.consumer[i].next, w.published)
		} else if w.token[i] != 0 || w.state[i] {
			k.fault = fmt.Sprintf("consumer %d ends with %d tokens, asleep %t", i, w.token[i], w.state[i])
		}
	}
	if w.published != k.end || w.count != 0 {
		k.fault = fmt.Sprintf("published is %d of %d, %d marks are counted", w.published, k.end, w.count)
	}
}

func TestProtocol_EveryInterleavingEnds(t *testing.T) {
	for _, k := range []walk{
		{ranges: [][]int8{{0, 1}}, consumers: 2, cancels: 1},
		{ranges: [][]int8{{0}, {1}}, consumers: 2},
		{ranges: [][]int8{{0, 2}, {1}}, consumers: 1, cancels: 1},
		{ranges: [][]int8{{0, 3}, {2, 1}}, consumers: 1},
		{ranges: [][]int8{{0}, {1}, {2}}},
	} {
		name := fmt.Sprint(k.ranges, " ", k.consumers)
		states, fault := k.run()
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
		t.Logf("%s: %d states", name, states)
	}
}

func TestProtocol_EveryFlawIsFound(t *testing.T) {
	for f := flagsBeforeValue; f <= cancelWithoutTake; f++ {
		k := walk{flaw: f, ranges: [][]int8{{0}, {1}}, consumers: 2, cancels: 1}
		if _, fault := k.run(); fault == "" {
			t.Errorf("flaw %d is not detected", f)
		} else {
			t.Logf("flaw %d: %s", f, fault)
		}
	}
}
