package loop

import "math/bits"

// pool lends buffers to the connections that have something to keep, so that the idle
// ones hold none and the busy ones allocate none. It belongs to the loop's goroutine.
type pool struct {
	classes [classCount]class
	bytes   int // in all classes
}

// class holds unused buffers of at least one size; the latest used is on top.
type class struct {
	free [][]byte
	low  int // the fewest in free since the last trim
}

const (
	// The classes: 512 bytes hold what a turn writes to a client that asks for one
	// thing at a time; beyond 128 KiB a buffer is worth its allocation.
	classBitsMin  = 9
	classBitsStep = 2
	classCount    = 5
	// poolBytesMax bounds what is kept for later: what a thousand clients who read and
	// write 4 KiB at a time need in one turn.
	poolBytesMax = 4 << 20
)

// lentMax is the largest buffer that the pool keeps, but for less than twice that.
const lentMax = 1 << (classBitsMin + classBitsStep*(classCount-1))

func classSize(i int) int { return 1 << (classBitsMin + classBitsStep*i) }

// get returns an empty buffer with room for n bytes at least.
func (p *pool) get(n int) []byte {
	i := 0
	if n > classSize(0) {
		i = (bits.Len(uint(n-1)) - classBitsMin + classBitsStep - 1) / classBitsStep
	}
	if i >= classCount {
		return make([]byte, 0, n)
	}
	c := &p.classes[i]
	last := len(c.free) - 1
	if last < 0 {
		return make([]byte, 0, classSize(i))
	}
	b := c.free[last]
	c.free[last] = nil
	c.free = c.free[:last]
	c.low = min(c.low, last)
	p.bytes -= cap(b)
	return b
}

// put takes back b, which is used no more.
func (p *pool) put(b []byte) {
	n := cap(b)
	if n < classSize(0) || n >= 2*lentMax || p.bytes+n > poolBytesMax {
		return
	}
	i := min((bits.Len(uint(n))-1-classBitsMin)/classBitsStep, classCount-1)
	p.classes[i].free = append(p.classes[i].free, b[:0])
	p.bytes += n
}

// trim frees what has not been needed since the last trim.
func (p *pool) trim() {
	for i := range p.classes {
		c := &p.classes[i]
		for _, b := range c.free[:c.low] {
			p.bytes -= cap(b)
		}
		kept := copy(c.free, c.free[c.low:])
		clear(c.free[kept:])
		c.free = c.free[:kept]
		c.low = kept
	}
}

// queue is bytes that are added behind and used up in front. The zero value is empty.
type queue struct {
	buf  []byte
	from int // what is before it has been used
}

func (q *queue) len() int      { return len(q.buf) - q.from }
func (q *queue) bytes() []byte { return q.buf[q.from:] }

// add puts a copy of b behind.
func (q *queue) add(p *pool, b []byte) {
	switch need := q.len() + len(b); {
	case len(q.buf)+len(b) <= cap(q.buf):
	case need <= cap(q.buf):
		q.buf = q.buf[:copy(q.buf, q.bytes())]
		q.from = 0
	default:
		larger := append(p.get(max(need, 2*cap(q.buf))), q.bytes()...)
		q.free(p)
		q.buf = larger
	}
	q.buf = append(q.buf, b...)
}

// use takes n bytes off the front.
func (q *queue) use(p *pool, n int) {
	if q.from += n; q.from == len(q.buf) {
		q.free(p)
	}
}

// free empties q.
func (q *queue) free(p *pool) {
	if q.buf != nil {
		p.put(q.buf)
	}
	q.buf, q.from = nil, 0
}
