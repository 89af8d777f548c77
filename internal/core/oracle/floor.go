package oracle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

const (
	// FloorMax is the last time that an operator can name as a floor, by whatever force, in unix
	// nanoseconds. Nothing lowers a floor, so every form must be served beyond it. The first to end is
	// that of IDs in the default layout, whose 41 bits of milliseconds end on 10 July 2080: after a
	// restore, no worker lease begins before the floor. That leaves 181 years of reservations below
	// CeilingMax, also where they outrun the clock, as those for 64-bit timestamps may; these
	// themselves have 46 bits of milliseconds, until 4199.
	//
	// A command with a larger floor, of a version without this bound, is applied: replicas must agree.
	FloorMax = (1_288_834_974_657+1<<41)*uint64(time.Millisecond) - 1
	// FloorPastMax is how long ago a floor may be. One in the past raises nothing, so that a longer
	// time is a mistake: a number of another unit, or of another oracle.
	FloorPastMax = 365 * 24 * time.Hour
)

// Floor is what an operator means by a floor.
type Floor struct {
	// Time is in unix nanoseconds, at most FloorMax. Every timestamp with a larger time, of either
	// form, is larger than the one that was named.
	Time uint64
	// Form is how the text was read, for display, such as "a 64-bit timestamp".
	Form string
}

// floorForms is what ParseFloor takes, for its errors.
const floorForms = "want a timestamp in 32 hexadecimal digits, a 64-bit one in decimal, unix nanoseconds, TIME:INDEX, or a time as in 2026-11-22T15:04:05Z"

// The forms of a floor.
const (
	formHex   = "a timestamp in hexadecimal"
	formPair  = "a time and an index"
	formNanos = "unix nanoseconds"
	form64    = "a 64-bit timestamp"
	formText  = "a time"
)

// ParseFloor parses a floor in any form in which timestamps, and their times, are printed: those of
// 16 bytes as 32 hexadecimal digits, or as TIME:INDEX, times as unix nanoseconds or as in RFC 3339,
// and timestamps of 64 bits as decimal numbers. Now is the clock, in unix nanoseconds. A number is
// read as nanoseconds and as a 64-bit timestamp, which differ by a factor of almost four; the one
// that is at most FloorPastMax before the clock, and at most FloorMax, is meant.
//
// The error says in which forms the text was read, and why none of them, or more than one, can be meant.
func ParseFloor(text string, now uint64) (Floor, error) {
	readings, err := readFloor(text)
	if err != nil {
		return Floor{}, err
	}
	var meant []Floor
	var all []string
	for _, f := range readings {
		all = append(all, fmt.Sprintf("as %s it is %s", f.Form, floorTime(f.Time)))
		if f.Time <= FloorMax && f.Time+uint64(FloorPastMax) >= now {
			meant = append(meant, f)
		}
	}
	switch tried := strings.Join(all, ", "); len(meant) {
	case 0:
		return Floor{}, fmt.Errorf("%.100q cannot be a floor: %s; the clock shows %s, and a floor is at most %d days before that and not after %s",
			text, tried, floorTime(now), FloorPastMax/(24*time.Hour), floorTime(FloorMax))
	case 1:
		return meant[0], nil
	default:
		return Floor{}, fmt.Errorf("%.100q is ambiguous: %s; write it as a time, as in 2026-11-22T15:04:05Z", text, tried)
	}
}

// readFloor returns what a text can mean. The error says that it has none of the forms.
func readFloor(text string) ([]Floor, error) {
	if len(text) == 2*isotone.TimestampSize {
		if t, err := isotone.ParseTimestamp(text); err == nil {
			return []Floor{{t.Time, formHex}}, nil
		}
	}
	if n, err := parseDecimal(text); err == nil {
		return []Floor{{n, formNanos}, {isotone.Timestamp64(n).Timestamp().Time, form64}}, nil
	}
	if left, right, pair := strings.Cut(text, ":"); pair {
		n, err := parseDecimal(left)
		if _, indexErr := parseDecimal(right); err == nil && indexErr == nil {
			return []Floor{{n, formPair}}, nil
		}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UTC().Year() < 1970 || t.UTC().Year() > 2261 { // which have unix nanoseconds
		return nil, fmt.Errorf("%.100q is no timestamp: %s", text, floorForms)
	}
	return []Floor{{uint64(t.UnixNano()), formText}}, nil
}

// parseDecimal parses digits only.
func parseDecimal(text string) (uint64, error) {
	if strings.HasPrefix(text, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(text, 10, 64)
}

// floorTime returns a time for display.
func floorTime(ns uint64) string {
	if ns > CeilingMax {
		return "after the year 2262"
	}
	return time.Unix(0, int64(ns)).UTC().Format(time.RFC3339)
}
