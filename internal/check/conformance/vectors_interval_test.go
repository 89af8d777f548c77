package conformance_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

// instant is an interval.Instant as two decimal strings.
type instant struct{ interval.Instant }

func (i *instant) UnmarshalJSON(text []byte) error {
	var parts [2]json.Number
	err := json.Unmarshal(text, &parts)
	if err == nil {
		i.Lo, err = parts[0].Int64()
	}
	if err == nil {
		i.Hi, err = parts[1].Int64()
	}
	return err
}

// reading has the fields of an interval.Reading as decimal strings.
type reading struct {
	Earliest, Latest, Limit, Term uint64 `json:",string"`
}

func (r reading) of(cluster uint64) interval.Reading {
	return interval.Reading{Cluster: cluster, Term: r.Term, Earliest: r.Earliest, Latest: r.Latest, Limit: r.Limit}
}

func TestVectors_Readings(t *testing.T) {
	v := load[struct {
		Readings []struct {
			reading
			Hex, Error, Cluster string
			Nonce               uint64 `json:",string"`
		}
	}](t, "interval")
	if len(v.Readings) == 0 {
		t.Error("no readings")
	}
	for _, c := range v.Readings {
		b, err := hex.DecodeString(c.Hex)
		if err != nil {
			t.Fatal(err)
		}
		got, nonce, err := interval.Decode(b)
		if c.Error != "" {
			if !errors.Is(err, isotone.ErrInvalidArgument) || c.Error != "invalid_argument" {
				t.Errorf("%s: %+v, %v", c.Hex, got, err)
			}
			continue
		}
		if err != nil || got != c.of(got.Cluster) || nonce != c.Nonce || isotone.ClusterID(got.Cluster).String() != c.Cluster {
			t.Errorf("%+v: %+v, %d, %v", c, got, nonce, err)
		}
	}
}

// estimateStep is a step of an estimate: it has one of Take, Bounds and Until.
type estimateStep struct {
	Take *struct {
		Sent, Received instant
		Reading        reading
	}
	Agrees, Believed bool

	Bounds *instant
	reading
	Good bool

	Until *instant
	Time  uint64 `json:",string"`
	OK    bool
	Wait  int64 `json:",string"`
}

func TestVectors_Estimates(t *testing.T) {
	v := load[struct {
		Estimates []struct {
			Name  string
			Steps []estimateStep
		}
	}](t, "interval")
	if len(v.Estimates) == 0 {
		t.Error("no estimates")
	}
	for _, c := range v.Estimates {
		var e interval.Estimate
		var r interval.Rate
		for i, s := range c.Steps {
			if !s.play(&e, &r) {
				t.Errorf("%s step %d: %+v", c.Name, i+1, s)
			}
		}
	}
}

// play reports whether a step has the right outcome.
func (s *estimateStep) play(e *interval.Estimate, r *interval.Rate) bool {
	switch {
	case s.Take != nil:
		agrees := e.Take(s.Take.Sent.Instant, s.Take.Received.Instant, s.Take.Reading.of(1))
		return agrees == s.Agrees && r.Take(s.Take.Received.Instant, s.Take.Reading.Term, agrees) == s.Believed && r.OK() == s.Believed
	case s.Bounds != nil:
		got, good := e.Bounds(s.Bounds.Instant)
		return got == s.of(0) && good == s.Good
	case s.Until != nil:
		wait, ok := e.Until(s.Until.Instant, s.Time)
		return wait == s.Wait && ok == s.OK
	}
	return false
}

func TestVectors_ClockGenerators(t *testing.T) {
	v := load[struct {
		Generators []struct {
			Last, Timestamp string
			Bounds          reading
			Random, Count   uint64 `json:",string"`
		}
	}](t, "interval")
	if len(v.Generators) == 0 {
		t.Error("no generators")
	}
	for _, c := range v.Generators {
		g := interval.NewGenerator(c.Random)
		if c.Last != "" { // made by bounds that have no room for another one
			last := timestamp(t, c.Last).Time
			if got, ok := g.Next(interval.Reading{Term: 1, Latest: last, Limit: last}, 1); !ok || got.String() != c.Last {
				t.Errorf("%+v: the last one: %v, %v", c, got, ok)
			}
		}
		got, ok := g.Next(c.Bounds.of(1), c.Count)
		if ok != (c.Timestamp != "") || ok && got.String() != c.Timestamp {
			t.Errorf("%+v: %v, %v", c, got, ok)
		}
	}
}

func TestVectors_Past(t *testing.T) {
	v := load[struct {
		Past []struct {
			Timestamp string
			Bounds    reading
			Past      bool
		}
	}](t, "interval")
	if len(v.Past) == 0 {
		t.Error("no timestamps")
	}
	for _, c := range v.Past {
		if interval.IsPast(timestamp(t, c.Timestamp), c.Bounds.of(1)) != c.Past {
			t.Errorf("%+v", c)
		}
	}
}
