package wire

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

var someReading = interval.Reading{Cluster: 77, Term: 9, Earliest: 1000, Latest: 1200, Limit: 5000}

// toldReading is what a codec was told.
type toldReading struct {
	nonce   uint64
	reading interval.Reading
}

// listener returns a codec of node 1 from node 2, and what it is asked and told.
func listener() (s *Codec, asked *[]uint64, told *[]toldReading) {
	s, asked, told = newCodec(), new([]uint64), new([]toldReading)
	s.OnClockAsk(func(nonce uint64) { *asked = append(*asked, nonce) })
	s.OnClockTold(func(nonce uint64, r interval.Reading) { *told = append(*told, toldReading{nonce, r}) })
	return s, asked, told
}

func TestCodec_AsksAndTellsTheClusterClock(t *testing.T) {
	var wire []byte
	for _, nonce := range []uint64{0, 1, math.MaxUint64} {
		wire = AppendPing(AppendClockTold(AppendClockAsk(wire, nonce), ^nonce, someReading))
		wire = append(wire, encoded(t, heartbeat(2, 1))...)
	}
	for _, size := range []int{1, 7, len(wire)} {
		s, asked, told := listener()
		messages := 0
		for part := range slices.Chunk(wire, size) {
			list, err := s.Parse(nil, part)
			if err != nil {
				t.Fatal(err)
			}
			messages += len(list)
		}
		want := []toldReading{{math.MaxUint64, someReading}, {math.MaxUint64 - 1, someReading}, {0, someReading}}
		if !slices.Equal(*asked, []uint64{0, 1, math.MaxUint64}) || !slices.Equal(*told, want) || messages != 3 {
			t.Errorf("parts of %d: asked %v, told %v, %d messages", size, *asked, *told, messages)
		}
	}
	if list, err := newCodec().Parse(nil, wire); err != nil || len(list) != 3 {
		t.Errorf("without callbacks: %d messages, %v", len(list), err)
	}
}

func TestCodec_RefusesAMalformedReading(t *testing.T) {
	frame := func(kind FrameType, payload []byte) []byte {
		return sealFrame(append(openFrame(nil, kind), payload...), 0)
	}
	reading := func(change func(*interval.Reading)) []byte {
		r := someReading
		change(&r)
		return AppendClockTold(nil, 1, r)
	}
	for name, wire := range map[string][]byte{
		"an empty question":            frame(FrameClockAsk, nil),
		"a short question":             frame(FrameClockAsk, make([]byte, 7)),
		"a long question":              frame(FrameClockAsk, make([]byte, 9)),
		"an empty reading":             frame(FrameClockTold, nil),
		"a short reading":              frame(FrameClockTold, someReading.Append(nil, 1)[:interval.ReadingSize-1]),
		"a long reading":               frame(FrameClockTold, append(someReading.Append(nil, 1), 0)),
		"a reading of no term":         reading(func(r *interval.Reading) { r.Term = 0 }),
		"bounds that cross":            reading(func(r *interval.Reading) { r.Earliest = r.Latest + 1 }),
		"a bound beyond the year 2262": reading(func(r *interval.Reading) { r.Latest = math.MaxInt64 + 1 }),
		"a limit beyond the year 2262": reading(func(r *interval.Reading) { r.Limit = math.MaxUint64 }),
	} {
		s, asked, told := listener()
		if _, err := s.Parse(nil, wire); !errors.Is(err, ErrProtocol) || len(*asked)+len(*told) > 0 {
			t.Errorf("%s: %v, asked %v, told %v", name, err, *asked, *told)
		}
	}
}

func TestHandshake_TakesNoReading(t *testing.T) {
	for _, f := range []Frame{{FrameClockAsk, make([]byte, 8)}, {FrameClockTold, someReading.Append(nil, 1)}} {
		h := NewDialer(ownHello(1), 2, nil)
		if _, err := h.Start(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Step(f, nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("frame type %d: %v", f.Type, err)
		}
	}
}

// What is taken is sent again as the same bytes, and no payload makes the parser panic.
func FuzzReading(f *testing.F) {
	f.Add(someReading.Append(nil, 1))
	f.Add([]byte("12345678"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		nonce, r, err := parseClockTold(payload)
		switch {
		case err != nil && (!errors.Is(err, ErrProtocol) || !errors.Is(err, isotone.ErrInvalidArgument)):
			t.Fatalf("%x: %v", payload, err)
		case err == nil && !slices.Equal(AppendClockTold(nil, nonce, r), frameOf(FrameClockTold, string(payload))):
			t.Fatalf("%x is sent as %x", payload, AppendClockTold(nil, nonce, r))
		}
		if nonce, err := parseClockAsk(payload); err == nil && !slices.Equal(AppendClockAsk(nil, nonce), frameOf(FrameClockAsk, string(payload))) {
			t.Fatalf("%x is sent as %x", payload, AppendClockAsk(nil, nonce))
		}
	})
}
