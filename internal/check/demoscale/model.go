package demoscale

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/proxy/balance"
)

// The three models of distribution.
const (
	modelProxy = "proxy" // clients know one address, and the proxy chooses
	modelNames = "names" // clients ask a name service who is there, and choose by themselves
	modelHash  = "hash"  // clients know all workers, and the word decides
)

func modelNamesAll() []string { return []string{modelProxy, modelNames, modelHash} }

// chooser is one client's way to a worker. Only that client uses it.
type chooser interface {
	// choose returns the address to ask for a word, and whether the connection may be kept.
	choose(ctx context.Context, word string) (addr string, keep bool, err error)
	// failed reports that the address has failed.
	failed(addr string)
}

var errNobody = errors.New("no worker is known")

// viaProxy asks the proxy, over a connection for each request: a TCP proxy distributes
// connections, whatever is in them.
type viaProxy struct{ addr string }

func (v viaProxy) choose(context.Context, string) (string, bool, error) { return v.addr, false, nil }
func (v viaProxy) failed(string)                                        {}

// byName asks the name service once for each period, and draws one of the list. What fails is not
// drawn until the next list.
type byName struct {
	service string
	refresh time.Duration
	source  *rand.Rand
	list    []place
	asked   time.Time
}

func (b *byName) choose(ctx context.Context, _ string) (string, bool, error) {
	if now := time.Now(); b.asked.IsZero() || now.Sub(b.asked) >= b.refresh || len(b.list) == 0 {
		if list, err := lookUp(ctx, b.service); err == nil { // else the old list is better than none
			b.list = list
		}
		b.asked = now
	}
	if len(b.list) == 0 {
		return "", false, errNobody
	}
	return b.list[b.source.IntN(len(b.list))].addr, true, nil
}

func (b *byName) failed(addr string) {
	b.list = slices.DeleteFunc(b.list, func(p place) bool { return p.addr == addr })
}

// byHash has the same rendezvous hashing as the proxy's sticky strategy, and no bound on loads: a
// client knows only its own requests. The names of the workers decide, not their addresses. It
// avoids a worker that has failed until it accepts a connection again.
type byHash struct {
	list   []place
	set    *balance.Set
	picker balance.Picker
	probe  time.Duration // pause between two attempts to connect to one that has failed
	next   []time.Time   // of those that are down, by worker
}

func newByHash(list []place, probe time.Duration) (*byHash, error) {
	var backends []balance.Backend
	for _, p := range list {
		backends = append(backends, balance.Backend{Name: p.name})
	}
	set, err := balance.NewSet(backends...)
	if err != nil {
		return nil, err
	}
	return &byHash{list: list, set: set, picker: balance.NewSticky(balance.StickyPercentMax), probe: probe, next: make([]time.Time, len(list))}, nil
}

func (b *byHash) choose(ctx context.Context, word string) (string, bool, error) {
	for i, p := range b.list {
		if now := time.Now(); b.set.Down(i) && !now.Before(b.next[i]) {
			b.next[i] = now.Add(b.probe)
			if c, err := dialLine(ctx, p.addr); err == nil {
				c.close()
				b.set.SetDown(i, false)
			}
		}
	}
	at := b.picker.Pick(b.set, balance.Request{Key: balance.Hash(word), Keyed: true})
	if at == balance.None {
		return "", false, errNobody
	}
	return b.list[at].addr, true, nil
}

func (b *byHash) failed(addr string) {
	for i, p := range b.list {
		if p.addr == addr {
			b.set.SetDown(i, true)
			b.next[i] = time.Now().Add(b.probe)
		}
	}
}
