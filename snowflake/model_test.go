package snowflake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/snowflake"
)

// model computes what a generator must do, in milliseconds and sequence numbers, one ID
// at a time.
type model struct {
	layout     snowflake.Layout
	worker     int
	ahead      int64 // in ms
	leased     bool
	start, end int64 // the part of the lease inside the layout
	leaseEnd   int64 // end of the whole lease
	stopped    bool

	any      bool  // there were IDs
	ms       int64 // of the last
	sequence int64
}

func (m *model) sequences() int64 { return 1 << m.layout.SequenceBits }

// verdict returns the expected error of a request for n IDs. The times of the layouts fit
// in int64.
func (m *model) verdict(n, now int64) error {
	first, last := m.layout.FirstMillis(), m.layout.LastMillis()
	ms, sequence := m.following()
	if now > ms {
		ms, sequence = now, 0
	}
	lastMS := ms + (sequence+n-1)/m.sequences()
	switch {
	case n > (min(m.ahead, last-first)+1)*m.sequences():
		return snowflake.ErrBatch
	case m.stopped:
		return snowflake.ErrLeaseEnded
	case now < first:
		return &snowflake.InvalidSystemClock{Fault: snowflake.ClockBeforeLayout, Now: now, Bound: first}
	case now > last:
		return &snowflake.InvalidSystemClock{Fault: snowflake.ClockAfterLayout, Now: now, Bound: last}
	case !m.any && m.start > now+m.ahead:
		return snowflake.ErrLeaseNotBegun
	case m.any && m.ms > now+m.ahead:
		return &snowflake.InvalidSystemClock{Fault: snowflake.ClockBehind, Now: now, Bound: m.ms}
	case lastMS >= m.end && m.end > last:
		return &snowflake.InvalidSystemClock{Fault: snowflake.ClockAfterLayout, Now: now, Bound: last}
	case lastMS >= m.end:
		return snowflake.ErrLeaseEnded
	case lastMS > now+m.ahead:
		return snowflake.ErrExhausted
	}
	return nil
}

// following returns what comes after the last ID if the clock stands still.
func (m *model) following() (ms, sequence int64) {
	switch {
	case !m.any:
		return m.start, 0
	case m.sequence+1 == m.sequences():
		return m.ms + 1, 0
	}
	return m.ms, m.sequence + 1
}

// take returns the next ID, which the verdict must allow.
func (m *model) take(now int64) snowflake.ID {
	ms, sequence := m.following()
	if now > ms {
		ms, sequence = now, 0
	}
	m.any, m.ms, m.sequence = true, ms, sequence
	return snowflake.ID(((ms-m.layout.Epoch)*int64(m.layout.Workers())+int64(m.worker))*m.sequences() + sequence)
}

func (m *model) extend(end int64) {
	if m.leased && end > m.leaseEnd {
		m.leaseEnd = end
		m.end = min(end, m.layout.LastMillis()+1)
	}
}

// unused returns the expected result of Stop.
func (m *model) unused(lease snowflake.Lease) int64 {
	switch {
	case m.any:
		return m.ms + 1
	case m.leased:
		return lease.Start
	}
	return m.layout.Epoch
}

// machine draws calls for a generator and its model.
type machine struct {
	model
	lease snowflake.Lease
	clock manual
	g     *snowflake.Generator
	last  snowflake.ID
}

func newMachine(t *rapid.T) *machine {
	// Few sequence numbers, so that every edge is near; or few milliseconds, and then more
	// sequence numbers than the test uses.
	workers := rapid.IntRange(1, 30).Draw(t, "worker bits")
	sequence := rapid.IntRange(0, 6).Draw(t, "sequence bits")
	m := &machine{last: -1}
	m.layout = snowflake.Layout{TimeBits: uint8(63 - workers - sequence), WorkerBits: uint8(workers), SequenceBits: uint8(sequence)}
	if rapid.Bool().Draw(t, "few milliseconds") {
		m.layout = snowflake.Layout{TimeBits: 6, DatacenterBits: 1, WorkerBits: 1, SequenceBits: 55}
	}
	m.layout.Epoch = rapid.Int64Range(0, 40).Draw(t, "epoch")
	m.worker = rapid.IntRange(0, m.layout.Workers()-1).Draw(t, "worker")
	m.ahead = rapid.Int64Range(0, 12).Draw(t, "ahead")
	ahead := time.Duration(m.ahead) * time.Millisecond
	if m.ahead == 0 {
		ahead = time.Nanosecond
	}
	m.start, m.end = m.layout.Epoch, m.layout.LastMillis()+1
	if m.leased = rapid.Bool().Draw(t, "leased"); m.leased {
		m.lease.Start = rapid.Int64Range(0, 60).Draw(t, "start")
		m.lease.End = m.lease.Start + rapid.Int64Range(1, 60).Draw(t, "length")
		m.leaseEnd = m.lease.End
		m.start = max(m.start, m.lease.Start)
		m.end = min(m.end, m.lease.End)
	}
	m.clock.ms = rapid.Int64Range(0, 110).Draw(t, "clock")
	g, err := snowflake.NewGenerator(m.worker, snowflake.Options{Layout: m.layout, Now: m.clock.now, Lease: m.lease, AheadMax: ahead})
	if m.lease.Start > m.layout.LastMillis() {
		if err == nil {
			t.Fatal("a lease after the layout")
		}
		t.Skip()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.g = g
	return m
}

// ask requests n IDs and compares the result with the model.
func (m *machine) ask(t *rapid.T, n int, ask func(dst []snowflake.ID) error) {
	now := m.clock.ms
	dst := make([]snowflake.ID, n)
	want := m.verdict(int64(n), now)
	err := ask(dst)
	if want != nil {
		var fault, got *snowflake.InvalidSystemClock
		switch {
		case errors.As(want, &fault):
			if !errors.As(err, &got) || *got != *fault {
				t.Fatalf("%d at %d: %v, want %v", n, now, err, want)
			}
		case err != want:
			t.Fatalf("%d at %d: %v, want %v", n, now, err, want)
		}
		for _, id := range dst {
			if id != 0 {
				t.Fatalf("a refusal wrote %v", dst)
			}
		}
		return
	}
	if err != nil {
		t.Fatalf("%d at %d: %v, want IDs", n, now, err)
	}
	for i, id := range dst {
		if want := m.take(now); id != want {
			t.Fatalf("ID %d of %d at %d: %d, want %d", i, n, now, id, want)
		}
		m.check(t, id)
	}
}

// check checks what holds for every ID, independently of the model.
func (m *machine) check(t *rapid.T, id snowflake.ID) {
	ms := m.layout.Millis(id)
	switch {
	case id <= m.last:
		t.Fatalf("ID %d after %d", id, m.last)
	case m.layout.Worker(id) != m.worker:
		t.Fatalf("ID %d of worker %d", id, m.layout.Worker(id))
	case m.leased && (ms < m.lease.Start || ms >= m.leaseEnd):
		t.Fatalf("ID at %d, outside the lease [%d, %d)", ms, m.lease.Start, m.leaseEnd)
	case ms > m.clock.ms+m.ahead:
		t.Fatalf("ID at %d, the clock is at %d", ms, m.clock.ms)
	case m.stopped:
		t.Fatal("an ID after Stop")
	}
	m.last = id
}

func TestGenerator_DoesWhatTheModelDoes(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"clock ticks": func(t *rapid.T) { m.clock.ms += rapid.Int64Range(0, 2).Draw(t, "ms") },
			"clock jumps": func(t *rapid.T) { m.clock.ms = rapid.Int64Range(0, 130).Draw(t, "to") },
			"clock is at an edge": func(t *rapid.T) {
				edges := []int64{m.layout.FirstMillis(), m.layout.LastMillis(), m.end, m.start - m.ahead, m.ms - m.ahead, m.ms + m.ahead}
				m.clock.ms = rapid.SampledFrom(edges).Draw(t, "edge") + rapid.Int64Range(-1, 1).Draw(t, "beside")
			},
			"TryNext": func(t *rapid.T) {
				m.ask(t, 1, func(dst []snowflake.ID) (err error) { dst[0], err = m.g.TryNext(); return err })
			},
			"TryFill": func(t *rapid.T) {
				n := rapid.IntRange(1, 300).Draw(t, "n")
				m.ask(t, n, m.g.TryFill)
			},
			"Next": func(t *rapid.T) {
				// If ctx is done, Next does not wait, and returns the error of ctx instead.
				if err := m.verdict(1, m.clock.ms); err == snowflake.ErrExhausted || err == snowflake.ErrLeaseNotBegun {
					if _, err := m.g.Next(canceled); err != context.Canceled {
						t.Fatal(err)
					}
					return
				}
				m.ask(t, 1, func(dst []snowflake.ID) (err error) { dst[0], err = m.g.Next(canceled); return err })
			},
			"Extend": func(t *rapid.T) {
				end := rapid.Int64Range(0, 150).Draw(t, "end")
				m.extend(end)
				m.g.Extend(end)
			},
			"Stop": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				if got, want := m.g.Stop(), m.unused(m.lease); got != want {
					t.Fatalf("Stop: %d, want %d", got, want)
				}
				m.stopped = true
			},
			"": func(t *rapid.T) {
				if want := (snowflake.Lease{Start: m.lease.Start, End: m.leaseEnd}); m.g.Lease() != want {
					t.Fatalf("lease %v, want %v", m.g.Lease(), want)
				}
			},
		})
	})
}
