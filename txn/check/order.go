package check

import (
	"cmp"
	"maps"
	"slices"
)

// order infers the dependencies from every key, and those of real time.
func (c *checker) order() *Anomaly {
	c.graph.init(len(c.history))
	for _, name := range c.names {
		k := c.keys[name]
		if !k.isList {
			c.orderRegister(name, k)
		} else if a := c.orderList(name, k); a != nil {
			return a
		}
	}
	c.orderTime()
	return nil
}

// orderList takes the longest list for the order of the versions. Elements that are in no list come
// after all that are.
func (c *checker) orderList(name string, k *key) *Anomaly {
	reads := slices.DeleteFunc(slices.Clone(k.reads), func(r read) bool { return !c.counts[r.txn] })
	slices.SortStableFunc(reads, func(a, b read) int { return cmp.Compare(len(a.list), len(b.list)) })
	for i := 1; i < len(reads); i++ {
		a, b := reads[i-1], reads[i]
		if !slices.Equal(a.list, b.list[:len(a.list)]) {
			return c.anomaly(Order, []int{a.txn, b.txn}, "neither list of %s begins with the other", name)
		}
	}
	var longest []int64
	if len(reads) > 0 {
		longest = reads[len(reads)-1].list
	}
	if a := c.checkParts(name, k, longest); a != nil {
		return a
	}
	writers := make([]int, len(longest))
	for i, value := range longest {
		writers[i] = k.writers[value].txn
		if i > 0 {
			c.graph.add(writers[i-1], writers[i], ww, name)
		}
	}
	unseen := c.unseen(k, longest)
	if n := len(writers); n > 0 {
		for _, w := range unseen {
			c.graph.add(writers[n-1], w, ww, name)
		}
	}
	for _, r := range reads {
		n := len(r.list)
		if n > 0 {
			c.graph.add(writers[n-1], r.txn, wr, name)
		}
		// The writer of the next version is another transaction, or, after an update, the next but one.
		for n < len(writers) && writers[n] == r.txn {
			n++
		}
		if n < len(writers) {
			c.graph.add(r.txn, writers[n], rw, name)
			continue
		}
		for _, w := range unseen {
			c.graph.add(r.txn, w, rw, name)
		}
	}
	return nil
}

// checkParts finds a transaction whose elements are in the list only in part, or in another order.
func (c *checker) checkParts(name string, k *key, list []int64) *Anomaly {
	parts := map[int][]int64{}
	for _, value := range list {
		t := k.writers[value].txn
		parts[t] = append(parts[t], value)
	}
	for _, value := range list {
		if t := k.writers[value].txn; !slices.Equal(parts[t], k.updates[t]) {
			return c.anomaly(Order, []int{t}, "%s has %v of the elements of the transaction", name, parts[t])
		}
	}
	return nil
}

// unseen returns the transactions that count as committed and whose values are not in the list.
func (c *checker) unseen(k *key, list []int64) (txns []int) {
	seen := map[int]bool{}
	for _, value := range list {
		seen[k.writers[value].txn] = true
	}
	for t := range k.updates {
		if c.counts[t] && !seen[t] {
			txns = append(txns, t)
		}
	}
	slices.Sort(txns)
	return txns
}

// orderRegister takes the order of the writers that the history gives, or else what is known from
// updates: the version that a transaction wrote comes right after the one that it read.
func (c *checker) orderRegister(name string, k *key) {
	next := map[int64][]int{} // by value: the writers that come after it
	if chain := c.chain(k); chain != nil {
		previous := int64(0)
		for _, t := range chain {
			next[previous] = []int{t}
			previous = last(k.updates[t])
		}
	} else {
		for _, r := range k.reads {
			if c.counts[r.txn] && len(k.updates[r.txn]) > 0 {
				next[r.value] = append(next[r.value], r.txn)
			}
		}
	}
	for _, value := range slices.Sorted(maps.Keys(k.writers)) {
		if w := k.writers[value]; w.final && c.counts[w.txn] {
			for _, t := range next[value] {
				c.graph.add(w.txn, t, ww, name)
			}
		}
	}
	for _, r := range k.reads {
		if !c.counts[r.txn] {
			continue
		}
		if r.value != 0 {
			c.graph.add(k.writers[r.value].txn, r.txn, wr, name)
		}
		for _, t := range next[r.value] {
			c.graph.add(r.txn, t, rw, name)
		}
	}
}

// chain returns the writers of a register in their order, or nil if the history does not have it.
func (c *checker) chain(k *key) (txns []int) {
	for t := range k.updates {
		if !c.counts[t] {
			continue
		}
		if c.history[t].Commit == 0 {
			return nil
		}
		txns = append(txns, t)
	}
	slices.SortFunc(txns, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.history[a].Commit, c.history[b].Commit), cmp.Compare(a, b))
	})
	return txns
}

// orderTime adds the real-time order. There is an auxiliary node for each end, which comes after all
// that ended by then: that takes as many edges as there are transactions, not their square.
func (c *checker) orderTime() {
	type ending struct {
		at   int64
		txn  int
		node int
	}
	var ends []ending
	for t := range c.history {
		if c.counts[t] && c.history[t].Status == Committed && c.history[t].End != 0 {
			ends = append(ends, ending{at: c.history[t].End, txn: t})
		}
	}
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.txn, b.txn)) })
	for i := range ends {
		ends[i].node = c.graph.node()
		c.graph.add(ends[i].txn, ends[i].node, rt, "")
		if i > 0 {
			c.graph.add(ends[i-1].node, ends[i].node, rt, "")
		}
	}
	for t := range c.history {
		if !c.counts[t] || c.history[t].Begin == 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, c.history[t].Begin, func(e ending, at int64) int { return cmp.Compare(e.at, at) })
		if n > 0 {
			c.graph.add(ends[n-1].node, t, rt, "")
		}
	}
}
