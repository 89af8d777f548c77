package utc

import (
	"encoding/binary"
	"testing"
	"time"
)

// written returns a segment as the daemon writes it at 100 s: within 1 ms, good for 1000 s.
func written() *segment {
	s, e := &segment{}, binary.NativeEndian
	e.PutUint32(s[0:], magicHigh)
	e.PutUint32(s[4:], magicLow)
	e.PutUint32(s[8:], 80)
	e.PutUint16(s[12:], segmentVersion)
	e.PutUint16(s[14:], 2)
	e.PutUint64(s[16:], 100)
	e.PutUint64(s[32:], 1100)
	e.PutUint64(s[40:], 500_000_000)
	e.PutUint64(s[48:], 1_000_000)
	e.PutUint64(s[56:], 7)
	e.PutUint32(s[64:], 50_000)
	e.PutUint32(s[68:], statusSynchronized)
	return s
}

const second = int64(time.Second)

func TestSegment_BoundGrowsWithDrift(t *testing.T) {
	for _, tt := range []struct {
		now          int64
		want         time.Duration
		synchronized bool
	}{
		{100 * second, time.Millisecond, true}, {100*second - 1e6, time.Millisecond, true},
		{104 * second, 1200 * time.Microsecond, true}, {110 * second, 1500 * time.Microsecond, false},
	} {
		got, err := written().status(tt.now, nil)
		if err != nil || got != (Status{ClockBound, tt.synchronized, true, tt.want}) {
			t.Errorf("at %d: %+v, %v, want %v", tt.now, got, err, tt.want)
		}
	}
}

func TestSegment_NoBoundWithoutGrounds(t *testing.T) {
	for name, change := range map[string]func(s *segment){
		"unknown":   func(s *segment) { binary.NativeEndian.PutUint32(s[68:], statusUnknown) },
		"disrupted": func(s *segment) { binary.NativeEndian.PutUint32(s[68:], statusDisrupted) },
		"no status": func(s *segment) { binary.NativeEndian.PutUint32(s[68:], 9) },
		"void":      func(s *segment) { binary.NativeEndian.PutUint64(s[32:], 109) },
		"moved":     func(s *segment) { s[72] = 1 },
	} {
		s := written()
		change(s)
		got, err := s.status(110*second, func(marker uint64) bool { return marker == 7 })
		if err != nil || got != (Status{Source: ClockBound}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	s := written()
	s[72] = 1
	if got, err := s.status(110*second, func(uint64) bool { return false }); err != nil || !got.Known {
		t.Errorf("the same marker: %+v, %v", got, err)
	}
	binary.NativeEndian.PutUint32(s[68:], statusFreeRunning)
	if got, err := s.status(110*second, func(uint64) bool { return false }); err != nil || !got.Known || got.Synchronized {
		t.Errorf("free running: %+v, %v", got, err)
	}
}

func TestSegment_RefusesOtherContents(t *testing.T) {
	e := binary.NativeEndian
	for name, change := range map[string]func(s *segment){
		"magic":          func(s *segment) { s[0]++ },
		"short":          func(s *segment) { e.PutUint32(s[8:], 72) },
		"version":        func(s *segment) { e.PutUint16(s[12:], 3) },
		"being written":  func(s *segment) { e.PutUint16(s[14:], 3) },
		"never written":  func(s *segment) { e.PutUint16(s[14:], 0) },
		"negative time":  func(s *segment) { e.PutUint64(s[16:], 1<<63) },
		"long second":    func(s *segment) { e.PutUint64(s[40:], 1_000_000_000) },
		"time to come":   func(s *segment) { e.PutUint64(s[16:], 111) },
		"no rate":        func(s *segment) { e.PutUint32(s[64:], 1_000_000_000) },
		"negative bound": func(s *segment) { e.PutUint64(s[48:], 1<<63) },
	} {
		s := written()
		change(s)
		if got, err := s.status(110*second, nil); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBest_PrefersABound(t *testing.T) {
	none := func() (Status, bool) { return Status{}, false }
	unknown := func() (Status, bool) { return Status{Source: ClockBound}, true }
	known := func() (Status, bool) { return Status{Source: Kernel, Synchronized: true, Known: true, Error: 1}, true }
	if s, ok := best(none, none); ok {
		t.Errorf("%+v of nobody", s)
	}
	if s, ok := best(unknown, known); !ok || s.Source != Kernel || s.Error != 1 {
		t.Errorf("%+v", s)
	}
	if s, ok := best(none, unknown, unknown); !ok || s.Source != ClockBound || s.Known {
		t.Errorf("%+v", s)
	}
}
