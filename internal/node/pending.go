package node

import "github.com/isotone/isotone/internal/front"

// pendingBatches maps tokens to the batches that the replica works on.
type pendingBatches struct {
	slots []*front.Batch
	free  []uint64
}

func (p *pendingBatches) put(b *front.Batch) uint64 {
	if n := len(p.free); n > 0 {
		token := p.free[n-1]
		p.free = p.free[:n-1]
		p.slots[token] = b
		return token
	}
	p.slots = append(p.slots, b)
	return uint64(len(p.slots) - 1)
}

func (p *pendingBatches) take(token uint64) *front.Batch {
	b := p.slots[token]
	p.slots[token] = nil
	p.free = append(p.free, token)
	return b
}

// drain returns all batches and forgets them.
func (p *pendingBatches) drain() []*front.Batch {
	var list []*front.Batch
	for _, b := range p.slots {
		if b != nil {
			list = append(list, b)
		}
	}
	*p = pendingBatches{}
	return list
}
