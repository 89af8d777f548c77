package node

import "github.com/isotone/isotone/internal/front"

// callTable maps tokens to the batches that the replica works on.
type callTable struct {
	slots []*front.Batch
	free  []uint64
}

func (t *callTable) put(b *front.Batch) uint64 {
	if n := len(t.free); n > 0 {
		token := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[token] = b
		return token
	}
	t.slots = append(t.slots, b)
	return uint64(len(t.slots) - 1)
}

func (t *callTable) take(token uint64) *front.Batch {
	b := t.slots[token]
	t.slots[token] = nil
	t.free = append(t.free, token)
	return b
}

// drain returns all batches and forgets them.
func (t *callTable) drain() []*front.Batch {
	var list []*front.Batch
	for _, b := range t.slots {
		if b != nil {
			list = append(list, b)
		}
	}
	*t = callTable{}
	return list
}
