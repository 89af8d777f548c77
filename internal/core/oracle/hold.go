package oracle

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// HoldLevel is the feature level that locks need.
	HoldLevel = 3
	// HoldsMax is the largest number of locks that are held.
	HoldsMax = 10_000
	// LockNameMax and LockValueMax are the largest lengths of the name of a lock and of the value of its holder, in bytes.
	LockNameMax, LockValueMax = 128, 128
	// HoldTTLMax is the longest TTL of a session that holds a lock.
	HoldTTLMax = time.Minute
	// HoldChangesMax is the largest number of changes in one command.
	HoldChangesMax = 200
)

// Hold is a session's right to a lock.
type Hold struct {
	Name string
	// Session is the ID of the session, not 0.
	Session uint64
	// Token is larger than the tokens of all earlier holds of the name.
	Token isotone.Timestamp64
	// TTL is that of the session, in whole milliseconds: how long a new leader waits for it.
	TTL time.Duration
	// Value is what the holder tells others.
	Value string
}

// HoldKind is the kind of a [HoldChange]. The values are part of the log format.
type HoldKind uint8

const (
	// HoldClaim gives a lock to a session, if it is free.
	HoldClaim HoldKind = 1
	// HoldRelease frees the lock Name if its token is Token.
	HoldRelease HoldKind = 2
)

// HoldChange is one change of who holds which lock. Only the fields of its kind count.
type HoldChange struct {
	Kind HoldKind
	Hold Hold
}

// Holds are all locks that are held. The zero value has none.
type Holds struct {
	byName    map[string]Hold
	bySession map[uint64]map[string]struct{}
	// sum is the sum of the hashes of all holds.
	sum uint64
}

// Len returns how many locks are held.
func (h *Holds) Len() int { return len(h.byName) }

// Get returns who holds a lock.
func (h *Holds) Get(name string) (Hold, bool) {
	have, ok := h.byName[name]
	return have, ok
}

// Count returns how many locks a session holds.
func (h *Holds) Count(session uint64) int { return len(h.bySession[session]) }

// Of returns what a session holds, in the order of the names.
func (h *Holds) Of(session uint64) []Hold {
	var list []Hold
	for _, name := range slices.Sorted(maps.Keys(h.bySession[session])) {
		list = append(list, h.byName[name])
	}
	return list
}

// Oldest returns at most limit holds, those with the smallest tokens, by token. It costs a few comparisons for each hold that there is.
func (h *Holds) Oldest(limit int) (list []Hold) {
	for _, have := range h.byName { // order-free: tokens differ
		if len(list) == limit && (limit == 0 || list[limit-1].Token < have.Token) {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, have.Token, func(o Hold, token isotone.Timestamp64) int { return cmp.Compare(o.Token, token) })
		list = slices.Insert(list, at, have)
		list = list[:min(len(list), limit)]
	}
	return list
}

// All returns all holds, in the order of their names.
func (h *Holds) All() iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		for _, name := range slices.Sorted(maps.Keys(h.byName)) {
			if !yield(h.byName[name]) {
				return
			}
		}
	}
}

// apply carries out changes in their order, and returns the holds that have ended.
func (h *Holds) apply(changes []HoldChange) (freed []Hold) {
	for _, c := range changes {
		have, held := h.byName[c.Hold.Name]
		switch c.Kind {
		case HoldClaim:
			if !held && h.Len() < HoldsMax || mutant.On(mutant.GrantUnchecked) {
				h.drop(have)
				h.put(c.Hold)
			}
		case HoldRelease:
			if held && (have.Token == c.Hold.Token || mutant.On(mutant.ReleaseByName)) {
				h.drop(have)
				freed = append(freed, have)
			}
		}
	}
	return freed
}

func (h *Holds) put(have Hold) {
	if h.byName == nil {
		h.byName, h.bySession = map[string]Hold{}, map[uint64]map[string]struct{}{}
	}
	h.byName[have.Name] = have
	if h.bySession[have.Session] == nil {
		h.bySession[have.Session] = map[string]struct{}{}
	}
	h.bySession[have.Session][have.Name] = struct{}{}
	h.sum += have.hash()
}

// drop removes a hold, if it is one.
func (h *Holds) drop(have Hold) {
	if h.byName[have.Name] != have || have.Name == "" {
		return
	}
	delete(h.byName, have.Name)
	if delete(h.bySession[have.Session], have.Name); len(h.bySession[have.Session]) == 0 {
		delete(h.bySession, have.Session)
	}
	h.sum -= have.hash()
	if len(h.byName) == 0 {
		*h = Holds{}
	}
}

// hash returns the 64-bit FNV-1a hash of a hold.
func (h Hold) hash() uint64 {
	sum := uint64(fnvOffset)
	for _, b := range h.append(nil) {
		sum = (sum ^ uint64(b)) * fnvPrime
	}
	return sum
}

// append appends the encoding of a hold to b.
func (h Hold) append(b []byte) []byte {
	b = appendU64(appendU64(appendString(b, h.Name), h.Session), uint64(h.Token))
	return appendString(appendU64(b, uint64(h.TTL/time.Millisecond)), h.Value)
}

func (d *decoder) hold() Hold {
	h := Hold{Name: d.lockName(), Session: d.u64(), Token: isotone.Timestamp64(d.u64())}
	ttl := d.u64()
	h.TTL, h.Value = time.Duration(ttl)*time.Millisecond, d.string()
	if ttl == 0 || ttl > uint64(HoldTTLMax/time.Millisecond) || h.Session == 0 || len(h.Value) > LockValueMax {
		d.fail("a hold without a session, or with a TTL or a value that is too long")
	}
	return h
}

func (d *decoder) lockName() string {
	name := d.string()
	if name == "" || len(name) > LockNameMax {
		d.fail("a lock without a name, or with one that is too long")
	}
	return name
}

// appendHoldChanges appends the encoding of changes to b: their number, and of each a kind byte, followed by its fields.
func appendHoldChanges(b []byte, list []HoldChange) []byte {
	b = append(b, byte(len(list)>>8), byte(len(list)))
	for _, c := range list {
		b = append(b, byte(c.Kind))
		switch c.Kind {
		case HoldClaim:
			b = c.Hold.append(b)
		case HoldRelease:
			b = appendU64(appendString(b, c.Hold.Name), uint64(c.Hold.Token))
		}
	}
	return b
}

func (d *decoder) holdChanges() (list []HoldChange) {
	for range d.count(HoldChangesMax) {
		c := HoldChange{Kind: HoldKind(d.byte())}
		switch c.Kind {
		case HoldClaim:
			c.Hold = d.hold()
		case HoldRelease:
			c.Hold.Name, c.Hold.Token = d.lockName(), isotone.Timestamp64(d.u64())
		default:
			d.fail("a change of locks of an unknown kind; was it written by a newer version?")
		}
		if d.err != nil {
			return nil
		}
		list = append(list, c)
	}
	return list
}

// appendSections appends the holds of a snapshot to b, as sections.
func (h *Holds) appendSections(b []byte) []byte {
	var part []byte
	for have := range h.All() {
		record := have.append(nil)
		if len(part)+len(record) > sectionMax {
			b, part = appendSection(b, sectionHolds, part), nil
		}
		part = append(part, record...)
	}
	if len(part) > 0 {
		b = appendSection(b, sectionHolds, part)
	}
	return b
}

// decodeSection decodes a section of a snapshot, which comes after those before it in the order of the names.
func (h *Holds) decodeSection(d *decoder) {
	last := ""
	for have := range h.byName { // order-free: the largest is wanted
		last = max(last, have)
	}
	for len(d.rest) > 0 {
		have := d.hold()
		if d.err == nil && (have.Name <= last || h.Len() == HoldsMax) {
			d.fail("too many locks, or out of order")
		}
		if d.err != nil {
			return
		}
		last = have.Name
		h.put(have)
	}
}

// ClaimsFrom returns the unix nanosecond from which locks may be claimed. It is 0 unless the cluster was restored from a backup: holders of the former cluster
// believe in their locks for up to HoldTTLMax. The floor of the restored one is in the fence of the members (see [Restored]).
func (s *State) ClaimsFrom() uint64 {
	if s.Fence.Members == 0 || mutant.On(mutant.ClaimBeforeFence) {
		return 0
	}
	return (s.Fence.Members-membersFence)*uint64(time.Millisecond) + uint64(HoldTTLMax)
}
