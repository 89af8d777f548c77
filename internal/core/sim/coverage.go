package sim

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Coverage counts how often each kind of fault occurred, and each pair: one while the other
// was going on or had just happened. The zero value is empty.
type Coverage struct {
	Kinds [kindCount]uint64
	Pairs [kindCount][kindCount]uint64
}

func (c *Coverage) add(k Kind, active []fault) {
	c.Kinds[k]++
	for _, f := range active {
		c.Pairs[min(f.kind, k)][max(f.kind, k)]++
	}
}

// Add adds the counts of another run.
func (c *Coverage) Add(o *Coverage) {
	for a := range c.Kinds {
		c.Kinds[a] += o.Kinds[a]
		for b := range c.Pairs[a] {
			c.Pairs[a][b] += o.Pairs[a][b]
		}
	}
}

// Missing returns the kinds and the pairs of different kinds that never occurred.
func (c *Coverage) Missing() (kinds []Kind, pairs [][2]Kind) {
	for a := range kindCount {
		if c.Kinds[a] == 0 {
			kinds = append(kinds, a)
		}
		for b := a + 1; b < kindCount; b++ {
			if c.Pairs[a][b] == 0 {
				pairs = append(pairs, [2]Kind{a, b})
			}
		}
	}
	return kinds, pairs
}

// ByName returns the counts of the kinds.
func (c *Coverage) ByName() map[string]uint64 {
	m := map[string]uint64{}
	for k := range kindCount {
		m[k.String()] = c.Kinds[k]
	}
	return m
}

// WriteTo writes a table of the kinds.
func (c *Coverage) WriteTo(out io.Writer) (int64, error) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for k := range kindCount {
		fmt.Fprintf(t, "%v\t%d\t", k, c.Kinds[k])
		if k%4 == 3 || k == kindCount-1 {
			fmt.Fprintln(t)
		}
	}
	return 0, t.Flush()
}
