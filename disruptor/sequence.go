package disruptor

import "sync/atomic"

// cacheLine is the necessary distance of two words that different cores write.
// Otherwise each write of one takes the line of the other from its core. Most lines
// have 64 bytes, but x86 fetches them in pairs, and those of Apple's processors have
// 128.
const cacheLine = 128

type padding [cacheLine]byte

// sequence is a count that other goroutines read and wait for: everything below value
// has been committed, or released. The flags are in the same cache line, which the
// core that advances value owns anyway.
//
// Both are plain words for the functions of sync/atomic, not its types: with the
// types the compiler would not inline Commit, and a call right before a locked
// instruction costs half as much as the instruction.
type sequence struct {
	_     [0]atomic.Uint64 // aligns the words where pointers have 32 bits
	_     padding
	value uint64
	// flags is not 0 if an advance requires more work: watched is set, or there are
	// marks of a SharedProducer, which count in units of marked.
	flags    uint64
	watchers []*waker // fixed before the first advance
	_        padding
}

const (
	watched = 1       // one of the watchers may be asleep
	marked  = 1 << 32 // see SharedProducer.commit
)

func (s *sequence) load() uint64 { return atomic.LoadUint64(&s.value) }

// advance publishes v and wakes the watchers.
//
// No wake-up is lost, because all atomic operations have a single order: here the
// store of value precedes the load of flags, and a sleeper sets watched before it
// loads value for the last time. So at least one of the two sees the other's write.
func (s *sequence) advance(v uint64) {
	atomic.StoreUint64(&s.value, v)
	jitter()
	if atomic.LoadUint64(&s.flags) != 0 {
		s.notify()
	}
}

// watch requests a wake-up at the next advance. The caller must set the state of its
// waker before, and load value again afterwards.
func (s *sequence) watch() { atomic.OrUint64(&s.flags, watched) }

// notify wakes all watchers that sleep. It clears the flag first: if that clears the
// flag of a concurrent watch, the sleeper's state is already set, so the loop wakes it.
func (s *sequence) notify() {
	atomic.AndUint64(&s.flags, ^uint64(watched))
	jitter()
	for _, w := range s.watchers {
		w.fire()
	}
}

// lowest returns the smallest value of several sequences.
func lowest(list []*sequence) uint64 {
	low := list[0].load()
	for _, s := range list[1:] {
		low = min(low, s.load())
	}
	return low
}

// The states of a waker.
const (
	awake  = iota
	parked // a goroutine is in park, or about to be
	armed  // fire calls the hook
)

// waker lets one goroutine sleep: it sets the state, watches a sequence, checks once
// more whether there is something to do, and only then sleeps.
type waker struct {
	_     padding
	state atomic.Uint32
	token chan struct{} // gets a token whenever fire ends the state parked
	hook  *func()
	_     padding
}

func (w *waker) init(hook *func()) {
	w.token, w.hook = make(chan struct{}, 1), hook
}

// fire ends the sleep, if there is one. Of concurrent calls only one has an effect.
func (w *waker) fire() {
	if w.state.Load() == awake {
		return // avoids a write to the line
	}
	switch w.state.Swap(awake) {
	case parked:
		jitter()
		w.token <- struct{}{} // never blocks: park and cancel leave it empty
	case armed:
		(*w.hook)()
	}
}

// park sleeps until fire or until done is closed.
func (w *waker) park(done <-chan struct{}) {
	select {
	case <-w.token:
	case <-done:
		w.cancel(parked)
	}
}

// cancel resets a state, which fire may have reset already. If that state was parked,
// fire sends a token, which cancel takes.
func (w *waker) cancel(state uint32) {
	jitter()
	if !w.state.CompareAndSwap(state, awake) && state == parked {
		<-w.token
	}
}
