package check

import (
	"fmt"
	"maps"
	"slices"
)

// Check returns nil if it finds no anomaly, and otherwise an *[Anomaly]. If there are several, it
// returns one whose name comes first in the list of names. It finds every anomaly that the inferred
// dependencies show; it never reports one that snapshot isolation allows.
func Check(history []Txn) error {
	c := &checker{history: history, keys: map[string]*key{}}
	for _, step := range []func() *Anomaly{c.collect, c.decide, c.checkReads, c.order, c.checkUpdates, c.findCycle} {
		if a := step(); a != nil {
			return a
		}
	}
	return nil
}

// checker holds what is known of a history, step by step.
type checker struct {
	history []Txn
	counts  []bool // the transaction counts as committed
	keys    map[string]*key
	names   []string // the keys in order
	graph   graph
}

// key is one list or register.
type key struct {
	isList  bool
	writers map[int64]write // by value
	reads   []read          // of others' values, one for each transaction
	updates map[int][]int64 // by transaction that wrote it: what it wrote
}

// write says who wrote a value.
type write struct {
	txn   int
	final bool // the transaction's last write of the key
}

// read is the first read of a key by a transaction, without what it had itself written before.
type read struct {
	txn   int
	list  []int64
	value int64
}

func (c *checker) anomaly(name Name, txns []int, format string, args ...any) *Anomaly {
	detail := fmt.Sprintf(format, args...)
	for _, t := range txns {
		detail += "; " + c.history[t].String()
	}
	return &Anomaly{Name: name, Txns: txns, Detail: detail}
}

// collect sorts the operations by key, and checks each transaction by itself.
func (c *checker) collect() *Anomaly {
	c.counts = make([]bool, len(c.history))
	for t := range c.history {
		txn := &c.history[t]
		if txn.Status < Committed || txn.Status > Unknown {
			return c.anomaly(Malformed, []int{t}, "no such status")
		}
		c.counts[t] = txn.Status == Committed
		if a := c.collectTxn(t); a != nil {
			return a
		}
	}
	c.names = slices.Sorted(maps.Keys(c.keys))
	return nil
}

// view is what a transaction knows of a key.
type view struct {
	known bool    // it has read or, if a register, written it
	list  []int64 // what the list is then, or else only what it has appended
	value int64
	last  int64 // the value that it wrote last, or 0
}

func (c *checker) collectTxn(t int) *Anomaly {
	views := map[string]*view{}
	for _, op := range c.history[t].Ops {
		k, ok := c.keys[op.Key]
		isList := op.Kind == Append || op.Kind == List
		if !ok {
			k = &key{isList: isList, writers: map[int64]write{}, updates: map[int][]int64{}}
			c.keys[op.Key] = k
		}
		if op.Kind < Append || op.Kind > Read || k.isList != isList {
			return c.anomaly(Malformed, []int{t}, "%v: no such operation on that key", op)
		}
		v, ok := views[op.Key]
		if !ok {
			v = &view{}
			views[op.Key] = v
		}
		a := (*Anomaly)(nil)
		switch op.Kind {
		case Append, Write:
			a = c.collectWrite(t, op, k, v)
		case List:
			a = c.collectList(t, op, k, v)
		case Read:
			a = c.collectRead(t, op, k, v)
		}
		if a != nil {
			return a
		}
	}
	return nil
}

func (c *checker) collectWrite(t int, op Op, k *key, v *view) *Anomaly {
	if other, ok := k.writers[op.Value]; ok || op.Value == 0 {
		return c.anomaly(Malformed, []int{other.txn, t}, "%v: the value was written before, or is 0", op)
	}
	if v.last != 0 {
		k.writers[v.last] = write{txn: t}
	}
	k.writers[op.Value] = write{txn: t, final: true}
	k.updates[t] = append(k.updates[t], op.Value)
	v.last, v.value = op.Value, op.Value
	v.list = append(v.list, op.Value)
	v.known = v.known || op.Kind == Write
	return nil
}

func (c *checker) collectList(t int, op Op, k *key, v *view) *Anomaly {
	own := len(op.List) - len(v.list)
	if v.known && own != 0 || own < 0 || !slices.Equal(op.List[own:], v.list) {
		return c.anomaly(Internal, []int{t}, "%v: want what the transaction has read and appended, %v", op, v.list)
	}
	if !v.known {
		k.reads = append(k.reads, read{txn: t, list: op.List[:own]})
	}
	v.known, v.list = true, slices.Clone(op.List)
	return nil
}

func (c *checker) collectRead(t int, op Op, k *key, v *view) *Anomaly {
	if v.known && op.Value != v.value {
		return c.anomaly(Internal, []int{t}, "%v: want what the transaction has read or written, %d", op, v.value)
	}
	if !v.known {
		k.reads = append(k.reads, read{txn: t, value: op.Value})
	}
	v.known, v.value = true, op.Value
	return nil
}

// values returns the values that a read has seen.
func (k *key) values(r read) []int64 {
	if k.isList {
		return r.list
	}
	if r.value == 0 {
		return nil
	}
	return []int64{r.value}
}

// decide finds the transactions of unknown outcome that have committed.
func (c *checker) decide() *Anomaly {
	for changed := true; changed; {
		changed = false
		for _, name := range c.names {
			k := c.keys[name]
			for _, r := range k.reads {
				for _, value := range k.values(r) {
					w, ok := k.writers[value]
					if c.counts[r.txn] && ok && !c.counts[w.txn] && c.history[w.txn].Status == Unknown {
						c.counts[w.txn] = true
						changed = true
					}
				}
			}
		}
	}
	return nil
}

// checkReads finds reads that are wrong by themselves: Garbage, G1a, G1b.
func (c *checker) checkReads() (worst *Anomaly) {
	for _, find := range []func(name string, k *key, r read) *Anomaly{c.findGarbage, c.findAborted, c.findIntermediate} {
		for _, name := range c.names {
			k := c.keys[name]
			for _, r := range k.reads {
				if !c.counts[r.txn] {
					continue
				}
				if a := find(name, k, r); a != nil {
					return a
				}
			}
		}
	}
	return nil
}

func (c *checker) findGarbage(name string, k *key, r read) *Anomaly {
	seen := map[int64]bool{}
	for _, value := range k.values(r) {
		if _, ok := k.writers[value]; !ok {
			return c.anomaly(Garbage, []int{r.txn}, "nothing wrote %d to %s", value, name)
		}
		if seen[value] {
			return c.anomaly(Garbage, []int{r.txn}, "%d is twice in %s", value, name)
		}
		seen[value] = true
	}
	return nil
}

func (c *checker) findAborted(name string, k *key, r read) *Anomaly {
	for _, value := range k.values(r) {
		if w := k.writers[value].txn; c.history[w].Status == Aborted {
			return c.anomaly(G1a, []int{w, r.txn}, "the transaction that wrote %d to %s has aborted", value, name)
		}
	}
	return nil
}

func (c *checker) findIntermediate(name string, k *key, r read) *Anomaly {
	values := k.values(r)
	if len(values) == 0 {
		return nil
	}
	last := values[len(values)-1]
	w := k.writers[last]
	if w.txn == r.txn {
		return c.anomaly(G1b, []int{r.txn}, "%s had %d before the transaction wrote it", name, last)
	}
	if !w.final {
		return c.anomaly(G1b, []int{w.txn, r.txn}, "%d was not the last that its transaction wrote to %s", last, name)
	}
	return nil
}

// checkUpdates finds transactions that read one version and both overwrote it.
func (c *checker) checkUpdates() *Anomaly {
	for _, name := range c.names {
		k := c.keys[name]
		first := map[int64]int{} // by version that was read: the length of a list, the value of a register
		for _, r := range k.reads {
			if !c.counts[r.txn] || len(k.updates[r.txn]) == 0 {
				continue
			}
			version := r.value
			if k.isList {
				version = int64(len(r.list))
			}
			if other, ok := first[version]; ok {
				return c.anomaly(LostUpdate, []int{other, r.txn}, "both wrote %s after they had read the same", name)
			}
			first[version] = r.txn
		}
	}
	return nil
}

func last(values []int64) int64 { return values[len(values)-1] }
