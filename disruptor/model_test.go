package disruptor

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRing_DoesWhatTheModelDoes makes random calls, one after another, to a ring and a
// model of it that consists of plain numbers.
func TestRing_DoesWhatTheModelDoes(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		rapid.Check(t, func(t *rapid.T) {
			m := newModel(t, shared)
			t.Repeat(map[string]func(*rapid.T){
				"":        m.check,
				"reserve": m.reserve,
				"commit":  m.commit,
				"poll":    m.poll,
				"release": m.release,
				"arm":     m.arm,
				"close":   m.close,
			})
		})
	})
}

type model struct {
	shared   bool
	capacity uint64
	ring     *Ring[uint64]
	writer   writer
	readers  []*modelReader

	claimed   uint64
	open      [][2]uint64 // reserved, not committed
	committed []bool      // by sequence number
	closed    bool
	end       uint64
}

type modelReader struct {
	*Consumer
	before      []*modelReader
	isLast      bool
	next, freed uint64
	armed       bool
	wakes       int // since the last Arm
}

func newModel(t *rapid.T, shared bool) *model {
	m := &model{shared: shared, capacity: 1 << rapid.IntRange(0, 4).Draw(t, "log capacity")}
	r, err := New[uint64](int(m.capacity))
	if err != nil {
		t.Fatal(err)
	}
	m.ring = r
	for i := range rapid.IntRange(1, 5).Draw(t, "consumers") {
		reader := &modelReader{isLast: true}
		var after []*Consumer
		for j := range i {
			if rapid.Bool().Draw(t, fmt.Sprintf("%d after %d", i, j)) {
				m.readers[j].isLast = false
				reader.before = append(reader.before, m.readers[j])
				after = append(after, m.readers[j].Consumer)
			}
		}
		reader.Consumer = r.Consumer(after...)
		reader.Wake = func() { reader.wakes++ }
		m.readers = append(m.readers, reader)
	}
	m.writer = writerOf(r, shared)
	return m
}

// published is the end of the longest committed prefix.
func (m *model) published() uint64 {
	if i := slices.Index(m.committed, false); i >= 0 {
		return uint64(i)
	}
	return uint64(len(m.committed))
}

func (m *model) available(r *modelReader) uint64 {
	if len(r.before) == 0 {
		return m.published()
	}
	low := r.before[0].freed
	for _, b := range r.before {
		low = min(low, b.freed)
	}
	return low
}

func (m *model) limit() uint64 {
	low := ^uint64(0)
	for _, r := range m.readers {
		if r.isLast {
			low = min(low, r.freed)
		}
	}
	return low + m.capacity
}

func (m *model) reserve(t *rapid.T) {
	n := uint64(rapid.IntRange(1, int(m.capacity)).Draw(t, "n"))
	lo, hi, err := m.writer.TryReserve(int(n))
	switch {
	case m.closed:
		if err != ErrClosed {
			t.Fatalf("TryReserve after Close: %v", err)
		}
		return
	case m.claimed+n > m.limit():
		if err != ErrFull {
			t.Fatalf("TryReserve(%d) with %d of %d reserved: %v", n, m.claimed, m.limit(), err)
		}
		return
	}
	if lo != m.claimed || hi != lo+n || err != nil {
		t.Fatalf("TryReserve(%d) with %d reserved: %d, %d, %v", n, m.claimed, lo, hi, err)
	}
	m.claimed = hi
	m.open = append(m.open, [2]uint64{lo, hi})
	m.committed = append(m.committed, make([]bool, n)...)
	for seq := lo; seq < hi; seq++ {
		*m.ring.At(seq) = seq * seq
	}
}

func (m *model) commit(t *rapid.T) {
	if len(m.open) == 0 || m.closed && !m.shared {
		t.Skip("nothing to commit")
	}
	which := 0
	if m.shared {
		which = rapid.IntRange(0, len(m.open)-1).Draw(t, "reservation")
	}
	lo, hi := m.open[which][0], m.open[which][1]
	cut := lo + uint64(rapid.IntRange(1, int(hi-lo)).Draw(t, "how much"))
	if m.shared && cut < hi && rapid.Bool().Draw(t, "end first") {
		lo, m.open[which][1] = cut, cut // from cut to the end
	} else if hi, m.open[which][0] = cut, cut; cut == m.open[which][1] {
		m.open = slices.Delete(m.open, which, which+1)
	}
	m.writer.Commit(lo, hi)
	for seq := lo; seq < hi; seq++ {
		m.committed[seq] = true
	}
}

func (m *model) reader(t *rapid.T) *modelReader {
	return m.readers[rapid.IntRange(0, len(m.readers)-1).Draw(t, "consumer")]
}

func (m *model) poll(t *rapid.T) {
	r := m.reader(t)
	lo, hi, err := r.Poll()
	r.armed = false
	want := m.available(r)
	wantErr := error(nil)
	if m.closed && r.next == m.end {
		wantErr = ErrClosed
	}
	if lo != r.next || hi != want || err != wantErr {
		t.Fatalf("Poll: %d, %d, %v; want %d, %d, %v", lo, hi, err, r.next, want, wantErr)
	}
	r.next = hi
}

func (m *model) release(t *rapid.T) {
	r := m.reader(t)
	hi := r.freed + uint64(rapid.IntRange(0, int(r.next-r.freed)).Draw(t, "how many"))
	for seq := r.freed; seq < hi; seq++ {
		if got := *m.ring.At(seq); got != seq*seq {
			t.Fatalf("element %d is %d", seq, got)
		}
	}
	r.Release(hi)
	r.freed = hi
}

func (m *model) arm(t *rapid.T) {
	r := m.reader(t)
	r.armed = r.Arm()
	r.wakes = 0
	if ready := m.available(r) > r.next || m.closed && r.next == m.end; r.armed == ready {
		t.Fatalf("Arm: %t; something to do: %t", r.armed, ready)
	}
}

func (m *model) close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		t.Skip("not yet")
	}
	m.writer.Close()
	if !m.closed {
		m.closed, m.end = true, m.claimed
		if !m.shared {
			m.end = m.published() // the rest is discarded
		}
	}
}

// check is called after every call.
func (m *model) check(t *rapid.T) {
	for i, r := range m.readers {
		ready := m.available(r) > r.next || m.closed && r.next == m.end
		if r.armed && ready && r.wakes == 0 {
			t.Fatalf("consumer %d: its wake-up is lost", i)
		}
		if r.wakes > 1 || !r.armed && r.sleep.state.Load() != awake {
			t.Fatalf("consumer %d: woken %d times, armed %t", i, r.wakes, r.armed)
		}
	}
}
