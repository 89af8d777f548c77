package disruptor

import "sync/atomic"

// cacheLine is how far apart two words must be that different cores write, or
// each write of one takes the other away from its core. Most lines have 64 bytes,
// but x86 fetches them in pairs, and those of Apple's processors have 128.
const cacheLine = 128

type padding [cacheLine]byte

// sequence is a count that others read and wait for: everything below value has
// been committed, or released. The flags lie beside it, in a line that whoever
// advances it holds anyway.
//
// Both are plain words for the functions of sync/atomic, not its types: with the
// types Commit would be more than the compiler inlines, and a call right before a
// locked instruction costs half as much as the instruction.
type sequence struct {
	_     [0]atomic.Uint64 // aligns the words where pointers have 32 bits
	_     padding
	value uint64
	// flags is not 0 if there is more to do after an advance: watched, or marks of a
	// SharedProducer, counted in units of marked.
	flags    uint64
	watchers []*waker // fixed before the first advance
	_        padding
}

const (
	watched = 1       // one of watchers may be asleep
	marked  = 1 << 32 // see SharedProducer.commit
)

func (s *sequence) load() uint64 { return atomic.LoadUint64(&s.value) }

// advance publishes v and wakes who waits for it.
//
// No wake-up is lost, because all atomic operations have one order: here the
// store of value precedes the load of flags, and a sleeper sets watched before it
// loads value for the last time. One of the two sees what the other did.
func (s *sequence) advance(v uint64) {
	atomic.StoreUint64(&s.value, v)
	jitter()
	if atomic.LoadUint64(&s.flags) != 0 {
		s.notify()
	}
}

// watch asks for a wake-up at the next advance. The state of the waker must be set
// before, and value be looked at after.
func (s *sequence) watch() { atomic.OrUint64(&s.flags, watched) }

// notify wakes all watchers that sleep. It clears the flag first: if that undoes a
// watch, the state of that sleeper was set before, and the loop finds it.
func (s *sequence) notify() {
	atomic.AndUint64(&s.flags, ^uint64(watched))
	jitter()
	for _, w := range s.watchers {
		w.fire()
	}
}

// lowest is the barrier that several sequences make.
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
	parked // a goroutine is in park, or will be
	armed  // the hook is to be called
)

// waker is how one party sleeps: it sets the state, watches a sequence, looks once
// more whether there is something to do, and only then sleeps.
type waker struct {
	_     padding
	state atomic.Uint32
	token chan struct{} // one token for each time that fire ended parked
	hook  *func()
	_     padding
}

func (w *waker) init(hook *func()) {
	w.token, w.hook = make(chan struct{}, 1), hook
}

// fire ends the sleep, if there is one. Of several that fire only one does.
func (w *waker) fire() {
	if w.state.Load() == awake {
		return // spares the line a write
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

// cancel takes back a state that w may no longer have. If it was parked and fire
// was first, the token is on its way.
func (w *waker) cancel(state uint32) {
	jitter()
	if !w.state.CompareAndSwap(state, awake) && state == parked {
		<-w.token
	}
}
