package oracle

// SetIndex puts an open allocator near the end of an epoch, which takes 2^32
// calls of the largest size otherwise.
func SetIndex(a *Allocator, index uint64) { a.index = index }
