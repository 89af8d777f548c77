package timeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// errEncoding is wrapped by every decoding error of this package.
var errEncoding = errors.New("timeline: malformed encoding")

// Append appends the encoding of c to b: a kind byte, then the fields. Numbers are varints (encoding/binary), names and lists have
// their length before them.
func (c Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case KindGrant:
		b = number(b, c.Target, uint64(len(c.Grants)))
		for _, g := range c.Grants {
			b = number(text(b, g.Group), g.Member, g.Session, g.Replaces)
		}
		return b
	case KindCreate:
		b = number(b, c.Target, uint64(len(c.Creations)))
		for _, n := range c.Creations {
			b = number(text(text(b, n.Name), n.Group), n.Above, n.Quota.Requests, n.Quota.Timestamps)
		}
		return b
	case KindMake:
		return list(text(b, c.Group), c.Prefer)
	case KindDrop:
		return text(b, c.Group)
	case KindLeaseOn, KindLeaseOff, KindLeaseEnd:
		return number(text(b, c.Group), c.Lease)
	}
	b = number(text(b, c.Name), c.ID)
	switch c.Kind {
	case KindMove:
		b = number(text(b, c.Group), c.Target)
	case KindFloor:
		b = number(b, c.Time)
	case KindQuota:
		b = number(b, c.Quota.Requests, c.Quota.Timestamps)
	}
	return b
}

// DecodeCommand decodes what [Command.Append] encoded. It never panics, and the command does not refer to b.
func DecodeCommand(b []byte) (Command, error) {
	d := decoder{rest: b}
	c := Command{Kind: Kind(d.byte())}
	switch c.Kind {
	case KindGrant:
		c.Target = d.number()
		for range d.count(GrantsMax) {
			c.Grants = append(c.Grants, Grant{Group: d.name(), Member: d.number(), Session: d.number(), Replaces: d.number()})
		}
	case KindCreate:
		c.Target = d.number()
		for range d.count(CreationsMax) {
			c.Creations = append(c.Creations, Creation{Name: d.name(), Group: d.nameOrNone(), Above: d.number(), Quota: d.quota()})
		}
	case KindMake:
		c.Group, c.Prefer = d.name(), d.list()
	case KindDrop:
		c.Group = d.name()
	case KindLeaseOn, KindLeaseOff, KindLeaseEnd:
		c.Group, c.Lease = d.name(), d.number()
	case KindDelete, KindSeal:
		c.Name, c.ID = d.name(), d.number()
	case KindMove:
		c.Name, c.ID, c.Group, c.Target = d.name(), d.number(), d.name(), d.number()
	case KindFloor:
		c.Name, c.ID, c.Time = d.name(), d.number(), d.number()
	case KindQuota:
		c.Name, c.ID, c.Quota = d.name(), d.number(), d.quota()
	default:
		d.fail(fmt.Sprintf("command kind %d is unknown; was it written by a newer version?", c.Kind))
	}
	return c, d.finish()
}

// Append appends the encoding of t to b: the ceiling, then all groups, timelines and tombstones, each with their number before
// them and in the order of their names.
func (t *Table) Append(b []byte) []byte {
	b = number(b, t.Ceiling, uint64(len(t.groups)))
	for _, name := range sortedNames(t.groups) {
		b = appendGroup(b, name, t.groups[name])
	}
	b = number(b, uint64(len(t.timelines)))
	for _, name := range sortedNames(t.timelines) {
		b = appendTimeline(b, name, t.timelines[name])
	}
	b = number(b, uint64(len(t.tombstones)))
	for _, name := range sortedNames(t.tombstones) {
		b = number(text(b, name), t.tombstones[name])
	}
	return b
}

// Decode decodes what [Table.Append] encoded. It never panics, and the table does not refer to b.
func Decode(b []byte) (Table, error) {
	d := decoder{rest: b}
	t := Table{Ceiling: d.ceiling()}
	groups := map[string]*string{} // so that all timelines of a group share one text
	order := ""
	for range d.count(GroupsMax) {
		name := d.nameAfter(&order)
		if d.err != nil {
			break
		}
		groups[name] = &name
		g := Group{Made: d.number(), Owner: d.number(), Session: d.number(), Grant: d.number(), Base: d.ceiling()}
		lease := d.number()
		g.Lease, g.Ending, g.Prefer = lease>>1, lease&1 > 0, d.list()
		if g.Ending && g.Lease == 0 {
			d.fail("a lease that ends before it began")
		}
		t.putGroup(name, g)
	}
	order = ""
	for range d.count(TimelinesMax) {
		name := d.nameAfter(&order)
		group, ok := groups[d.name()]
		if !ok {
			d.fail("a timeline of no group")
			break
		}
		t.put(name, Timeline{ID: d.number(), Group: *group, Since: d.number(), Base: d.ceiling(), Ceiling: d.ceiling(), Bound: d.ceiling(), Quota: d.quota()})
	}
	order = ""
	for range d.count(tombstonesMax) {
		name, ceiling := d.nameAfter(&order), d.ceiling()
		if d.err == nil {
			t.sum += hashTombstone(name, ceiling)
			set(&t.tombstones, name, ceiling)
		}
	}
	if err := d.finish(); err != nil {
		return Table{}, err
	}
	return t, nil
}

func appendGroup(b []byte, name string, g Group) []byte {
	lease := g.Lease << 1
	if g.Ending {
		lease++
	}
	return list(number(text(b, name), g.Made, g.Owner, g.Session, g.Grant, g.Base, lease), g.Prefer)
}

func appendTimeline(b []byte, name string, t Timeline) []byte {
	b = number(text(text(b, name), t.Group), t.ID, t.Since, t.Base, t.Ceiling, t.Bound)
	return number(b, t.Quota.Requests, t.Quota.Timestamps)
}

// Digest returns a hash of the table, 0 of one without anything. It takes no time in proportion to the table: the
// records count by the sum of their hashes.
func (t *Table) Digest() uint64 {
	if t.Ceiling == 0 && t.sum == 0 {
		return 0
	}
	return fnv(number(nil, t.Ceiling, t.sum))
}

func hashGroup(name string, g Group) uint64       { return fnv(appendGroup([]byte{'g'}, name, g)) }
func hashTimeline(name string, t Timeline) uint64 { return fnv(appendTimeline([]byte{'t'}, name, t)) }
func hashTombstone(name string, ceiling uint64) uint64 {
	return fnv(number(text([]byte{'d'}, name), ceiling))
}

// fnv returns the 64-bit FNV-1a hash (Fowler, Noll, Vo) of b.
func fnv(b []byte) uint64 {
	sum := uint64(14695981039346656037)
	for _, c := range b {
		sum = (sum ^ uint64(c)) * 1099511628211
	}
	return sum
}

func number(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func text(b []byte, s string) []byte { return append(number(b, uint64(len(s))), s...) }

func list(b []byte, values []uint64) []byte { return number(number(b, uint64(len(values))), values...) }

// decoder reads fields off the front of rest. After the first failure every read returns zero, and finish returns the
// failure.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errEncoding, what)
	}
	d.rest = nil
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail("it ends early")
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// number reads a varint in its shortest form.
func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.fail("a number that ends early, is too large or has zeros in front")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// ceiling reads a time of at most CeilingMax.
func (d *decoder) ceiling() uint64 {
	v := d.number()
	if v > CeilingMax {
		d.fail("a time beyond the year 2262")
		return 0
	}
	return v
}

// count reads a number of at most limit. Each of what is counted takes a byte or more.
func (d *decoder) count(limit int) int {
	n := d.number()
	if n > uint64(limit) || n > uint64(len(d.rest)) {
		d.fail("a length beyond its limit")
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.count(NameMax)
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) name() string {
	s := d.text()
	if err := CheckName(s); err != nil && d.err == nil {
		d.fail(err.Error())
	}
	return s
}

func (d *decoder) nameOrNone() string {
	if len(d.rest) > 0 && d.rest[0] == 0 {
		return d.text()
	}
	return d.name()
}

// nameAfter reads a name that comes after the one before it.
func (d *decoder) nameAfter(last *string) string {
	s := d.name()
	if s <= *last {
		d.fail("names out of order")
	}
	*last = s
	return s
}

func (d *decoder) quota() Quota { return Quota{Requests: d.number(), Timestamps: d.number()} }

func (d *decoder) list() []uint64 {
	var values []uint64
	for range d.count(PreferMax) {
		values = append(values, d.number())
	}
	return slices.Clip(values)
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.rest)))
	}
	return d.err
}
