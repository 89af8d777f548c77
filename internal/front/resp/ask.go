package resp

import (
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	tracing "github.com/isotone/isotone/internal/front/requestid" // a transaction here is that of MULTI
)

// ask is what a TS or TSIN command asks for, of either form.
type ask struct {
	count uint64
	mode  isotone.ReadMode
	u64   bool
	in    bool   // the name of the timeline is the key
	slot  uint16 // where a redirect of another command than these sends its key; see redirectSlot
	// timeline is what the client gets; see access.Session.Timeline. "": the default order.
	timeline string
}

// countMax returns how many timestamps of the form one command may ask for.
func (a *ask) countMax() uint64 {
	if a.u64 {
		return isotone.Range64CountMax
	}
	return isotone.RangeCountMax
}

// options are what such a command may have besides. The zero value has none.
type options struct {
	floor    isotone.Timestamp
	timeline string        // as named; "": none is
	parent   tracing.Trace // of the caller
	// op and at are those of ORACLE, which is alone in its batch.
	op timeline.Op
	at uint64
}

// isTS reports whether name is TS, TS64, TSIN or TS64IN in any case.
func isTS(name []byte) bool {
	if len(name) < 2 || name[0]|0x20 != 't' || name[1]|0x20 != 's' {
		return false
	}
	switch len(name) {
	case 2:
		return true
	case 4:
		return isTS64(name) || isIn(name)
	case 6:
		return isTS64(name) && isIn(name)
	}
	return false
}

// isTS64 and isIn tell commands apart for which isTS reports true.
func isTS64(name []byte) bool { return len(name) >= 4 && name[2] == '6' && name[3] == '4' }

func isIn(name []byte) bool {
	n := len(name)
	return n >= 4 && name[n-2]|0x20 == 'i' && name[n-1]|0x20 == 'n'
}

// isOracle reports whether name is ORACLE in any case.
func isOracle(name []byte) bool { return is(name, oracleCommand) }

// oracleCommand asks the oracle of reads and writes of a timeline.
const oracleCommand = "ORACLE"

// parseOracle reads ORACLE name WRITE|PEEK|READ|APPLY ms [QUORUM|LEASE] [TRACEPARENT value].
func parseOracle(args [][]byte) (a ask, o options, err error) {
	if len(args) < 3 {
		return a, o, wrongNumber(args[0])
	}
	o.timeline = string(args[1])
	if err := timeline.CheckName(o.timeline); err != nil {
		return a, o, isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %v", err)
	}
	at, rest, has := "", args[3:], is(args[2], "APPLY") && len(args) > 3
	if has {
		at, rest = string(rest[0]), rest[1:]
	}
	a.count, a.in = 1, true
	if o.op, o.at, err = front.ParseReadWrite(strings.ToLower(string(args[2])), at, has); err != nil {
		return a, o, err
	}
	if len(rest) > 0 && !is(rest[0], "TRACEPARENT") {
		if a.mode, err = parseMode(rest[0]); err != nil {
			return a, o, err
		}
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0:
	case len(rest) == 2 && is(rest[0], "TRACEPARENT"):
		o.parent, err = parseTraceparent(rest[1])
	default:
		err = wrongNumber(args[0])
	}
	return a, o, err
}

func parseMode(arg []byte) (isotone.ReadMode, error) {
	switch {
	case is(arg, "QUORUM"):
		return isotone.ReadQuorum, nil
	case is(arg, "LEASE"):
		return isotone.ReadLease, nil
	}
	return isotone.ReadDefault, isotone.Errorf(isotone.CodeInvalidArgument, "mode %.40q: want QUORUM or LEASE", arg)
}

// parseAsk reads TSIN name [count [QUORUM|LEASE]] [FLOOR timestamp] [TRACEPARENT value], or TS with TIMELINE name among the options, or TS64IN or TS64
// with the same arguments, or [parseOracle].
//
// The timeline is among the options, as the client may get another one. Errors match isotone.ErrInvalidArgument.
func parseAsk(args [][]byte) (a ask, o options, err error) {
	switch {
	case isOracle(args[0]):
		return parseOracle(args)
	case !isIn(args[0]):
		return parseTS(args[0], args)
	}
	if len(args) < 2 {
		return a, o, wrongNumber(args[0])
	}
	name := string(args[1])
	if err := timeline.CheckName(name); err != nil {
		return a, o, isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %v", err)
	}
	if a, o, err = parseTS(args[0], args[1:]); err == nil && o.timeline != "" {
		err = isotone.Errorf(isotone.CodeInvalidArgument, "%s has the name of its timeline in front; TIMELINE is for TS and TS64", args[0])
	}
	a.in, o.timeline = true, name
	return a, o, err
}

func wrongNumber(name []byte) error {
	return isotone.Errorf(isotone.CodeInvalidArgument, "wrong number of arguments for '%s' command", strings.ToLower(string(name)))
}

// parseTS reads what args have behind the first, of a command with that name.
func parseTS(name []byte, args [][]byte) (a ask, o options, err error) {
	a.count, a.u64 = 1, isTS64(name)
	for at := 1; at <= 3 && at < len(args); at++ {
		if !is(args[at], "FLOOR") && !is(args[at], "TIMELINE") && !is(args[at], "TRACEPARENT") {
			continue
		}
		if o, err = parseOptions(args[at:]); err != nil {
			return a, o, err
		}
		args = args[:at]
	}
	if len(args) > 3 {
		return a, o, wrongNumber(name)
	}
	if len(args) > 1 {
		var ok bool
		if a.count, ok = front.ParseCount(args[1]); !ok || a.count > a.countMax() {
			return a, o, isotone.Errorf(isotone.CodeInvalidArgument, "count %.40q: want a whole number from 1 to %d", args[1], a.countMax())
		}
	}
	if len(args) > 2 {
		a.mode, err = parseMode(args[2])
	}
	return a, o, err
}

// parseOptions reads the options of TS and TS64, each with its name before it.
func parseOptions(args [][]byte) (o options, err error) {
	floor, named, parent := false, false, false
	for ; len(args) > 0; args = args[2:] {
		switch {
		case len(args) > 1 && is(args[0], "FLOOR") && !floor:
			floor = true
			var ok bool
			if o.floor, ok = front.ParseFloor(args[1]); !ok {
				return o, isotone.Errorf(isotone.CodeInvalidArgument, "floor %.40q: want a timestamp as 32 hexadecimal digits, or one of 64 bits in decimal", args[1])
			}
		case len(args) > 1 && is(args[0], "TIMELINE") && !named:
			named = true
			o.timeline = string(args[1])
			if err := timeline.CheckName(o.timeline); err != nil {
				return o, isotone.Errorf(isotone.CodeInvalidArgument, "timeline: %v", err)
			}
		case len(args) > 1 && is(args[0], "TRACEPARENT") && !parent:
			parent = true
			if o.parent, err = parseTraceparent(args[1]); err != nil {
				return o, err
			}
		default:
			return o, isotone.Errorf(isotone.CodeInvalidArgument, "FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value")
		}
	}
	return o, nil
}

func parseTraceparent(arg []byte) (tracing.Trace, error) {
	parent, ok := tracing.ParseTraceparent(arg)
	if !ok {
		return parent, isotone.Errorf(isotone.CodeInvalidArgument, "traceparent %.60q: want that of W3C Trace Context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", arg)
	}
	return parent, nil
}

// is reports whether an argument is a word, which is given in capitals, in any case.
func is(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}
