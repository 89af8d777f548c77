package oracle

import "encoding/binary"

// The encoding of worker leases. Each value has exactly one, and the decoder accepts no other.

func (s Space) append(b []byte) []byte {
	b = append(b, s.TimeBits, s.DatacenterBits, s.WorkerBits, s.SequenceBits)
	return appendU64(b, uint64(s.Epoch))
}

func (d *decoder) space() Space {
	s := Space{TimeBits: d.byte(), DatacenterBits: d.byte(), WorkerBits: d.byte(), SequenceBits: d.byte()}
	s.Epoch = int64(d.u64())
	return s
}

// append writes the fixed worker plus one, 0 for any.
func (q *LeaseRequest) append(b []byte) []byte {
	b = appendU64(appendU64(q.Space.append(b), q.Node), q.Session)
	b = binary.BigEndian.AppendUint16(append(b, q.Slots), uint16(q.Fixed+1))
	return appendU64(appendU64(b, q.From), q.Until)
}

func (d *decoder) leaseRequest() LeaseRequest {
	return LeaseRequest{
		Space: d.space(), Node: d.u64(), Session: d.u64(),
		Slots: d.byte(), Fixed: int(d.u16()) - 1, From: d.u64(), Until: d.u64(),
	}
}

func (r *Release) append(b []byte) []byte {
	b = appendU64(appendU64(b, r.Node), r.Session)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Used)))
	for _, u := range r.Used {
		b = appendU64(appendU64(binary.BigEndian.AppendUint16(b, u.Worker), u.Start), u.Next)
	}
	return b
}

func (d *decoder) release() Release {
	r := Release{Node: d.u64(), Session: d.u64()}
	if n := d.count(SlotsMax); n > 0 {
		r.Used = make([]Used, n)
		for i := range r.Used {
			r.Used[i] = Used{Worker: d.u16(), Start: d.u64(), Next: d.u64()}
		}
	}
	return r
}

// Flags of a worker record.
const (
	flagFixed = 1 << iota
	flagRevoked
)

func (l WorkerLease) flags() (f byte) {
	if l.Fixed {
		f |= flagFixed
	}
	if l.Revoked {
		f |= flagRevoked
	}
	return f
}

func (s *State) appendWorkers(b []byte) []byte {
	b = s.Space.append(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.Workers)))
	for _, l := range s.Workers {
		b = binary.BigEndian.AppendUint16(b, l.Worker)
		b = appendU64(appendU64(append(b, l.Slot, l.flags()), l.Node), l.Session)
		b = appendU64(appendU64(b, l.Start), l.End)
	}
	return b
}

func (d *decoder) workers(s *State) {
	s.Space = d.space()
	if !s.Space.IsValid() {
		d.fail("an id layout whose bits are not 63, or whose epoch is negative")
	}
	next := 0
	for range d.count(workersMax) {
		l := WorkerLease{Worker: d.u16(), Slot: d.byte()}
		flags := d.byte()
		l.Fixed, l.Revoked = flags&flagFixed != 0, flags&flagRevoked != 0
		l.Node, l.Session, l.Start, l.End = d.u64(), d.u64(), d.u64(), d.u64()
		switch {
		case int(l.Worker) < next || int(l.Worker) >= s.Space.Workers():
			d.fail("workers out of order, or beyond the id layout")
		case flags&^(flagFixed|flagRevoked) != 0 || l.Slot >= SlotsMax || l.Session == 0 && (flags != 0 || l.Node != 0 || l.Slot != 0):
			d.fail("a worker lease that contradicts itself")
		case l.Start >= l.End || l.End > millisMax:
			d.fail("a worker lease without time")
		}
		if d.err != nil {
			break
		}
		next = int(l.Worker) + 1
		s.Workers = append(s.Workers, l)
	}
}
