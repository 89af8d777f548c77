package loop

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPool_GivesRoomAndTakesItBack(t *testing.T) {
	var p pool
	for _, n := range []int{0, 1, 511, 512, 513, 2048, 2049, 8192, 10_000, 32 << 10, 100_000, lentMax, 1 << 20} {
		b := p.get(n)
		if len(b) != 0 || cap(b) < n || n <= lentMax && cap(b) > max(512, 4*n) {
			t.Errorf("get(%d): %d bytes, room for %d", n, len(b), cap(b))
		}
		before := p.bytes
		p.put(b)
		kept := cap(b) < 2*lentMax
		if got := p.bytes - before; kept != (got == cap(b)) {
			t.Errorf("put of %d bytes: keeps %d", cap(b), got)
		}
		if kept && &b[:1][0] != &p.get(n)[:1][0] {
			t.Errorf("get(%d) does not give what was put", n)
		}
		p = pool{}
	}
}

func TestPool_IsBoundedAndFreesWhatIsNotUsed(t *testing.T) {
	var p pool
	var out [][]byte
	for range 2 * poolBytesMax / lentMax {
		out = append(out, p.get(lentMax), p.get(1))
	}
	for _, b := range out {
		p.put(b)
	}
	if p.bytes > poolBytesMax {
		t.Errorf("keeps %d bytes", p.bytes)
	}
	p.trim() // all of them were in use
	a, b := p.get(1), p.get(1)
	p.put(a)
	p.put(b)
	p.trim() // two of them were
	if p.bytes != 2*classSize(0) {
		t.Errorf("keeps %d bytes after a trim", p.bytes)
	}
	p.trim()
	if p.bytes != 0 {
		t.Errorf("keeps %d bytes after two trims", p.bytes)
	}
}

func TestQueue_IsFirstInFirstOut(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var p pool
	var q queue
	var model []byte
	for range 100_000 {
		if r.IntN(2) == 0 && len(model) < 200_000 {
			b := make([]byte, r.IntN(1<<r.IntN(14)))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			q.add(&p, b)
			model = append(model, b...)
		} else {
			n := min(r.IntN(1<<r.IntN(14)), len(model))
			q.use(&p, n)
			model = model[n:]
		}
		if !bytes.Equal(q.bytes(), model) || q.len() != len(model) {
			t.Fatalf("seed %d: differs", seed)
		}
		if len(model) == 0 && q.buf != nil {
			t.Fatalf("seed %d: it is empty and holds a buffer", seed)
		}
		if cap(q.buf) > 4*200_000 {
			t.Fatalf("seed %d: room for %d bytes to hold %d", seed, cap(q.buf), len(model))
		}
	}
}
