package snowflake

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

const (
	// idBits is the sum of the bits of all parts of a layout.
	idBits = 63
	// workerBitsMax bounds datacenter and worker together, so that the number of
	// workers is an int on every platform.
	workerBitsMax = 30
)

// Layout defines how the 63 bits of an ID are split, from high to low:
//
//	time | datacenter | worker | sequence
//
// The time counts milliseconds from the epoch. The sequence counts the IDs of one
// worker within a millisecond. In this package, "the worker" is datacenter and worker
// together, one number from 0 to Workers()-1; [Layout.Split] returns the two parts.
//
// The other methods require a layout for which [Layout.Validate] returns nil. Layouts
// may be compared with ==.
type Layout struct {
	// TimeBits is at least 1.
	TimeBits uint8
	// DatacenterBits and WorkerBits may be 0; their sum is at most 30.
	DatacenterBits, WorkerBits uint8
	// SequenceBits may be 0: one ID per millisecond.
	SequenceBits uint8
	// Epoch is the time of IDs with time 0, in unix milliseconds. It is not negative.
	Epoch int64
}

// Twitter is the layout of Twitter's Snowflake: 69 years from 4 November 2010,
// 1,024 workers, 4,096 IDs per worker and millisecond.
var Twitter = Layout{TimeBits: 41, DatacenterBits: 5, WorkerBits: 5, SequenceBits: 12, Epoch: 1288834974657}

// ParseLayout parses a layout such as "41/5/5/12": the bits of time, datacenter, worker
// and sequence. Three parts, as in "41/10/12", omit the datacenter. Numbers are decimal,
// without signs, spaces or leading zeros. An error matches [isotone.ErrInvalidArgument]
// and lists everything that is wrong.
func ParseLayout(s string, epoch int64) (Layout, error) {
	parts := strings.SplitN(s, "/", 5)
	if len(parts) != 3 && len(parts) != 4 {
		return Layout{}, isotone.Errorf(isotone.CodeInvalidArgument,
			"layout %q: want time/datacenter/worker/sequence or time/worker/sequence, in bits", s)
	}
	var bits [4]uint8
	for i, part := range parts {
		v, err := parse(part, "", 10, 2)
		if err != nil {
			return Layout{}, isotone.Errorf(isotone.CodeInvalidArgument, "layout %q: %q is not a number of bits", s, part)
		}
		bits[i] = uint8(v)
	}
	if len(parts) == 3 {
		bits[1], bits[2], bits[3] = 0, bits[1], bits[2]
	}
	l := Layout{TimeBits: bits[0], DatacenterBits: bits[1], WorkerBits: bits[2], SequenceBits: bits[3], Epoch: epoch}
	if err := l.Validate(); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// String returns the form that [ParseLayout] parses, with three parts if there are no
// datacenter bits. It does not include the epoch.
func (l Layout) String() string {
	if l.DatacenterBits == 0 {
		return fmt.Sprintf("%d/%d/%d", l.TimeBits, l.WorkerBits, l.SequenceBits)
	}
	return fmt.Sprintf("%d/%d/%d/%d", l.TimeBits, l.DatacenterBits, l.WorkerBits, l.SequenceBits)
}

// Validate returns nil, or an error that lists everything that is wrong and matches
// [isotone.ErrInvalidArgument].
func (l Layout) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if sum := int(l.TimeBits) + int(l.DatacenterBits) + int(l.WorkerBits) + int(l.SequenceBits); sum != idBits {
		fault("the parts have %d bits, want %d", sum, idBits)
	}
	if l.TimeBits == 0 {
		fault("there are no bits for the time")
	}
	if both := int(l.DatacenterBits) + int(l.WorkerBits); both > workerBitsMax {
		fault("datacenter and worker have %d bits, at most %d", both, workerBitsMax)
	}
	if l.Epoch < 0 {
		fault("the epoch %d is negative", l.Epoch)
	} else if l.TimeBits <= idBits && l.Epoch > math.MaxInt64-int64(l.timeMax()) {
		fault("the epoch %d and %d bits of time go beyond 63 bits of milliseconds", l.Epoch, l.TimeBits)
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "layout %s: %s", l, strings.Join(faults, "; "))
}

// Workers returns the number of workers of all datacenters together.
func (l Layout) Workers() int { return 1 << (l.DatacenterBits + l.WorkerBits) }

// Split returns the datacenter and the worker part of a worker, 0 to Workers()-1.
func (l Layout) Split(worker int) (datacenter, inDatacenter int) {
	return worker >> l.WorkerBits, worker & (1<<l.WorkerBits - 1)
}

// Join is the inverse of [Layout.Split]. A part that does not fit in its bits gives an
// error that matches [isotone.ErrInvalidArgument].
func (l Layout) Join(datacenter, inDatacenter int) (worker int, err error) {
	if datacenter < 0 || datacenter >= 1<<l.DatacenterBits {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"datacenter %d: layout %s has 0 to %d", datacenter, l, 1<<l.DatacenterBits-1)
	}
	if inDatacenter < 0 || inDatacenter >= 1<<l.WorkerBits {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument,
			"worker %d: layout %s has 0 to %d in a datacenter", inDatacenter, l, 1<<l.WorkerBits-1)
	}
	return datacenter<<l.WorkerBits | inDatacenter, nil
}

// Millis returns the time of id in unix milliseconds.
func (l Layout) Millis(id ID) int64 {
	return l.Epoch + int64(uint64(id)>>l.timeShift())
}

// Time returns the time of id, in UTC, to the millisecond. It is the time by the
// generator's clock at which the ID was made, or up to [Options.AheadMax] later.
func (l Layout) Time(id ID) time.Time { return time.UnixMilli(l.Millis(id)).UTC() }

// Worker returns the worker of id, datacenter and worker together.
func (l Layout) Worker(id ID) int {
	return int(uint64(id) >> l.SequenceBits & uint64(l.Workers()-1))
}

// Datacenter returns the datacenter part of id.
func (l Layout) Datacenter(id ID) int {
	datacenter, _ := l.Split(l.Worker(id))
	return datacenter
}

// InDatacenter returns the worker part of id, without the datacenter.
func (l Layout) InDatacenter(id ID) int {
	_, in := l.Split(l.Worker(id))
	return in
}

// Sequence returns the sequence part of id.
func (l Layout) Sequence(id ID) int { return int(uint64(id) & (1<<l.SequenceBits - 1)) }

// FirstMillis returns the first unix millisecond that the time bits can hold: the
// epoch.
func (l Layout) FirstMillis() int64 { return l.Epoch }

// LastMillis returns the last unix millisecond that the time bits can hold.
func (l Layout) LastMillis() int64 { return l.Epoch + int64(l.timeMax()) }

func (l Layout) timeShift() uint8 { return l.DatacenterBits + l.WorkerBits + l.SequenceBits }

// timeMax is the largest value of the time bits.
func (l Layout) timeMax() uint64 { return 1<<l.TimeBits - 1 }
