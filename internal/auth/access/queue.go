package access

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"time"
)

const (
	// verifyQueueMax bounds the credentials that wait to be checked: 1.3 s of hashing, 5 s with
	// the rests between guesses.
	verifyQueueMax = 64
	// guessRest is how long the verifier rests after a check for an address that has guessed
	// wrong before, as a multiple of what the check took: such guesses take a quarter of a core.
	guessRest = 3
	// restStep is how soon others are noticed meanwhile.
	restStep = 2 * time.Millisecond
	// attemptSharesMax bounds the connections that wait for one check, of the same credentials
	// from the same address: those of one client that starts.
	attemptSharesMax = 1024
)

// attempt is one check that waits or is under way.
type attempt struct {
	digest      [sha256.Size]byte // of the credentials
	credentials Credentials
	addr        netip.Addr    // see networkOf
	done        []func(error) // all want the same
}

func (a *attempt) finish(err error) {
	for _, done := range a.done {
		done(err)
	}
}

// failures returns how many wrong credentials came from addr in the last minute, with mu held.
func (v *verifier) failures(addr netip.Addr) int {
	if f := v.failed[addr]; f != nil && v.control.cfg.Now()-f.since < failureTime {
		return f.count
	}
	return 0
}

// weight returns how many wrong credentials came from addr, with all that wait counted as
// wrong, and mu held.
func (v *verifier) weight(addr netip.Addr) int {
	n := v.failures(addr)
	for _, a := range v.queue {
		if a.addr == addr {
			n++
		}
	}
	return n
}

// enqueue has a checked, or returns true and the error why not. A full queue drops what an
// address with more guesses has in it. It is called with mu held.
func (v *verifier) enqueue(a *attempt) (now bool, err error) {
	if v.failures(a.addr) >= failuresMax {
		return true, errTooManyBad
	}
	for _, b := range v.queue {
		if b.digest == a.digest && b.addr == a.addr && len(b.done) < attemptSharesMax {
			b.done = append(b.done, a.done...)
			return false, nil
		}
	}
	weight := v.weight(a.addr)
	if weight >= failuresMax || len(v.queue) >= verifyQueueMax && !v.drop(weight+1) {
		return true, errVerifyQueue
	}
	v.queue = append(v.queue, a)
	if !v.running {
		v.running = true
		go v.run()
	}
	return false, nil
}

// drop makes room in the queue: it drops the latest attempt of the address with the largest
// weight, if that is more than weight.
func (v *verifier) drop(weight int) bool {
	at := -1
	for i, a := range v.queue {
		if w := v.weight(a.addr); w > weight || at >= 0 && w == weight {
			at, weight = i, w
		}
	}
	if at < 0 || len(v.dropped) >= verifyQueueMax {
		return false
	}
	v.dropped = append(v.dropped, v.queue[at])
	v.queue = slices.Delete(v.queue, at, at+1)
	return true
}

// take returns what to check next, nil if nothing waits: the oldest attempt of the address with
// the fewest wrong credentials, so that guesses wait for others, and not the other way round.
func (v *verifier) take() (a *attempt, dropped []*attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	dropped, v.dropped = v.dropped, nil
	if len(v.queue) == 0 {
		v.running = false
		return nil, dropped
	}
	best, fewest := 0, v.failures(v.queue[0].addr)
	for i, a := range v.queue {
		if n := v.failures(a.addr); n < fewest {
			best, fewest = i, n
		}
	}
	a = v.queue[best]
	v.queue = slices.Delete(v.queue, best, best+1)
	return a, dropped
}

// run checks what waits, and ends when nothing does. The rest after a guess outlasts it: the next
// run begins with what is left of it.
func (v *verifier) run() {
	for {
		v.rest()
		a, dropped := v.take()
		for _, d := range dropped {
			d.finish(errVerifyQueue)
		}
		if a == nil {
			return
		}
		guessed, began := v.hasGuessed(a.addr), time.Now()
		err := v.check(a)
		took := time.Since(began)
		a.finish(err)
		if guessed && err != nil {
			v.restUntil = time.Now().Add(guessRest * took)
		}
	}
}

func (v *verifier) hasGuessed(addr netip.Addr) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failures(addr) > 0
}

// rest waits until restUntil, or until credentials wait that are from an address without guesses,
// or none wait at all.
func (v *verifier) rest() {
	for time.Now().Before(v.restUntil) && v.guessesWait() {
		time.Sleep(restStep)
	}
}

// guessesWait reports that credentials wait, and all are from addresses that have guessed wrong.
func (v *verifier) guessesWait() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	newcomer := slices.ContainsFunc(v.queue, func(a *attempt) bool { return v.failures(a.addr) == 0 })
	return len(v.queue) > 0 && !newcomer
}
