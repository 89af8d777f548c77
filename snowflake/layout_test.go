package snowflake_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

func TestLayout_ReadsAnIDOfTwitter(t *testing.T) {
	// A tweet of 17 October 2022.
	const id = snowflake.ID(1581992219404554241)
	l := snowflake.Twitter
	if got, want := l.Time(id), time.UnixMilli(int64(id>>22)+1288834974657).UTC(); !got.Equal(want) || got.Year() != 2022 || got.Location() != time.UTC {
		t.Errorf("time %v, want %v", got, want)
	}
	if got := []int{l.Worker(id), l.Datacenter(id), l.InDatacenter(id), l.Sequence(id)}; got[0] != int(id>>12&1023) ||
		got[1] != int(id>>17&31) || got[2] != int(id>>12&31) || got[3] != int(id&4095) {
		t.Errorf("worker, datacenter, in it, sequence: %v", got)
	}
}

func TestLayout_Bounds(t *testing.T) {
	l := snowflake.Twitter
	if l.Workers() != 1024 || l.FirstMillis() != 1288834974657 || l.LastMillis() != 1288834974657+1<<41-1 {
		t.Error(l.Workers(), l.FirstMillis(), l.LastMillis())
	}
	if got := l.Time(math.MaxInt64); got.Year() != 2080 {
		t.Error("the last ID is of", got)
	}
	whole := snowflake.Layout{TimeBits: 63}
	if err := whole.Validate(); err != nil || whole.LastMillis() != math.MaxInt64 || whole.Workers() != 1 {
		t.Error(err, whole.LastMillis(), whole.Workers())
	}
}

func TestParseLayout_ReadsThreeOrFourParts(t *testing.T) {
	for s, want := range map[string]snowflake.Layout{
		"41/5/5/12":  {41, 5, 5, 12, 7},
		"42/10/11":   {42, 0, 10, 11, 7},
		"42/0/10/11": {42, 0, 10, 11, 7},
		"41/10/0/12": {41, 10, 0, 12, 7},
		"51/0/12":    {51, 0, 0, 12, 7},
		"1/30/32":    {1, 0, 30, 32, 7},
	} {
		if got, err := snowflake.ParseLayout(s, 7); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "41", "41/22", "41/5/5/12/0", "41/5/5/", "/41/22", "41/ 5/5/12", "+41/5/5/12", "41/05/5/12", "100/5/5/12",
		"42/5/5/12", "0/15/24/24", "32/31/0", "32/16/15/0", "a/b/c", "41/5/5/12\n"} {
		if got, err := snowflake.ParseLayout(s, 7); !errors.Is(err, isotone.ErrInvalidArgument) || got != (snowflake.Layout{}) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

func TestLayout_StringLeavesOutNoDatacenter(t *testing.T) {
	if got := snowflake.Twitter.String(); got != "41/5/5/12" {
		t.Error(got)
	}
	if got := (snowflake.Layout{42, 0, 10, 11, 7}).String(); got != "42/10/11" {
		t.Error(got)
	}
}

func TestLayout_ValidateNamesEveryFault(t *testing.T) {
	err := snowflake.Layout{0, 200, 20, 12, -1}.Validate()
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, fault := range []string{"232 bits", "no bits for the time", "220 bits, at most 30", "-1 is negative"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q is not in %q", fault, err)
		}
	}
	if err := (snowflake.Layout{63, 0, 0, 0, 1}).Validate(); err == nil {
		t.Error("milliseconds overflow")
	}
	if err := (snowflake.Layout{255, 0, 0, 0, 1}).Validate(); err == nil {
		t.Error("255 bits of time")
	}
}

func TestLayout_JoinRefusesPartsThatDoNotFit(t *testing.T) {
	for _, parts := range [][2]int{{-1, 0}, {32, 0}, {0, -1}, {0, 32}} {
		if worker, err := snowflake.Twitter.Join(parts[0], parts[1]); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%v: %d, %v", parts, worker, err)
		}
	}
}

// layouts draws a valid layout, whose epoch leaves room for clocks before and after it.
func layouts(t *rapid.T) snowflake.Layout {
	workers := rapid.IntRange(0, 30).Draw(t, "worker bits")
	datacenters := rapid.IntRange(0, workers).Draw(t, "datacenter bits")
	sequence := rapid.IntRange(0, 62-workers).Draw(t, "sequence bits")
	return snowflake.Layout{
		TimeBits:       uint8(63 - workers - sequence),
		DatacenterBits: uint8(datacenters),
		WorkerBits:     uint8(workers - datacenters),
		SequenceBits:   uint8(sequence),
	}
}

func TestLayout_TakesApartWhatWasPutTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts(t)
		l.Epoch = rapid.Int64Range(0, math.MaxInt64-l.LastMillis()).Draw(t, "epoch")
		ms := rapid.Int64Range(0, l.LastMillis()-l.Epoch).Draw(t, "ms")
		worker := rapid.IntRange(0, l.Workers()-1).Draw(t, "worker")
		sequence := rapid.Int64Range(0, 1<<l.SequenceBits-1).Draw(t, "sequence")
		id := snowflake.ID((ms*int64(l.Workers())+int64(worker))<<l.SequenceBits + sequence)
		if got := l.Millis(id); got != l.Epoch+ms {
			t.Errorf("ms %d, want %d", got, l.Epoch+ms)
		}
		if got := l.Worker(id); got != worker {
			t.Errorf("worker %d, want %d", got, worker)
		}
		if got := l.Sequence(id); int64(got) != sequence {
			t.Errorf("sequence %d, want %d", got, sequence)
		}
		datacenter, in := l.Split(worker)
		if l.Datacenter(id) != datacenter || l.InDatacenter(id) != in {
			t.Errorf("%d and %d, want %d and %d", l.Datacenter(id), l.InDatacenter(id), datacenter, in)
		}
		if back, err := l.Join(datacenter, in); err != nil || back != worker {
			t.Errorf("joined %d, %v, want %d", back, err, worker)
		}
		if read, err := snowflake.ParseLayout(l.String(), l.Epoch); err != nil || read != l {
			t.Errorf("%s is read as %+v, %v", l, read, err)
		}
	})
}
