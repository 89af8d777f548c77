package utc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// segment is the shared memory of ClockBound, in the byte order of the machine: "ClockBound Shared
// Memory Protocol Version 2", docs/PROTOCOL.md of github.com/aws/clock-bound. Newer daemons write it
// as well, beside their own.
//
//	 0 magic 8                    16 as-of 16 (seconds, nanoseconds)   56 disruption marker 8
//	 8 size of the segment 4      32 void-after 16                     64 drift per second, in ns 4
//	12 version 2, generation 2    48 bound 8, in ns                    68 status 4
//	                                                                   72 marker supported 1
type segment [73]byte

const (
	magicHigh, magicLow = 0x414d5a4e, 0x43420200
	segmentVersion      = 2
)

// The status of the clock in a segment.
const (
	statusUnknown = iota
	statusSynchronized
	statusFreeRunning
	statusDisrupted
)

const (
	// restartMax is how old a segment may be of a daemon that is there, or restarts. ClockBound's own
	// client takes the clock for free-running from then on.
	restartMax = 5 * time.Second
	// aheadMax is how far ahead of now the clock that wrote the segment may be. Beyond it the segment
	// is one of another boot, or machine.
	aheadMax = 10 * time.Millisecond
)

var errNoSegment = errors.New("no segment of ClockBound")

// generation is odd while the daemon writes, and 0 before it has written anything.
func (s *segment) generation() uint16 { return binary.NativeEndian.Uint16(s[14:]) }

// time returns the time at an offset in nanoseconds.
func (s *segment) time(at int) (int64, bool) {
	seconds, nanos := int64(binary.NativeEndian.Uint64(s[at:])), int64(binary.NativeEndian.Uint64(s[at+8:]))
	ok := 0 <= seconds && seconds < math.MaxInt64/2/int64(time.Second) && 0 <= nanos && nanos < int64(time.Second)
	return seconds*int64(time.Second) + nanos, ok
}

// status returns what the segment says at now, CLOCK_MONOTONIC in nanoseconds. disrupted reports
// whether the virtual machine's clock was disrupted since the given marker, for example because the
// machine was moved to another host.
func (s *segment) status(now int64, disrupted func(marker uint64) bool) (Status, error) {
	e := binary.NativeEndian
	if e.Uint32(s[0:]) != magicHigh || e.Uint32(s[4:]) != magicLow || e.Uint32(s[8:]) < uint32(len(s)) {
		return Status{}, errNoSegment
	}
	if v := e.Uint16(s[12:]); v != segmentVersion {
		return Status{}, fmt.Errorf("ClockBound's segment has version %d, want %d", v, segmentVersion)
	}
	if g := s.generation(); g == 0 || g&1 != 0 {
		return Status{}, errNoSegment
	}
	asOf, ok1 := s.time(16)
	voidAfter, ok2 := s.time(32)
	bound := int64(e.Uint64(s[48:]))
	drift := e.Uint32(s[64:])
	if !ok1 || !ok2 || bound < 0 || bound > math.MaxInt64/2 || drift >= 1e9 || asOf > now+int64(aheadMax) {
		return Status{}, errNoSegment
	}
	result := Status{Source: ClockBound}
	status := int32(e.Uint32(s[68:]))
	if now >= voidAfter || s[72] != 0 && disrupted(e.Uint64(s[56:])) {
		return result, nil
	}
	if status == statusSynchronized || status == statusFreeRunning {
		age := max(0, now-asOf)
		grown := float64(bound) + float64(age)/1e9*float64(drift)
		result.Synchronized = status == statusSynchronized && age < int64(restartMax)
		result.Known, result.Error = true, time.Duration(min(grown, math.MaxInt64/2))
	}
	return result, nil
}
