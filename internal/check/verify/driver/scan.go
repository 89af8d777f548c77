package driver

import (
	"strconv"
	"strings"
)

// scanner takes text apart from the left. After the first thing that is not as expected, failed is set.
type scanner struct {
	rest   string
	failed bool
}

// callMin is about how many bytes a call has, at least.
const callMin = 48

// scanAnswer takes a line apart that answers ask, if it is written just as [Serve] writes it when no call fails. All
// other lines, which are right as well, are left to encoding/json, which takes ten times as long.
func scanAnswer(line []byte) (r Response, ok bool) {
	s := scanner{rest: string(line)}
	s.skip(`{"id":`)
	r.ID = s.number()
	s.skip(`,"ok":{"calls":[`)
	if s.failed {
		return r, false
	}
	r.calls = make([]Call, 0, len(line)/callMin+1)
	for more := true; more && !s.failed; more = s.has(",") {
		var c Call
		s.skip(`{"first":"`)
		c.First = s.digits()
		s.skip(`","count":`)
		c.Count = s.number()
		s.skip(`,"began":`)
		c.Began = s.reading()
		s.skip(`,"ended":`)
		c.Ended = s.reading()
		s.skip(`}`)
		r.calls = append(r.calls, c)
	}
	s.skip("]}}")
	return r, !s.failed && s.rest == ""
}

// has skips a text if it is there.
func (s *scanner) has(text string) (ok bool) {
	s.rest, ok = strings.CutPrefix(s.rest, text)
	return ok
}

func (s *scanner) skip(text string) { s.failed = !s.has(text) || s.failed }

// digits returns a decimal number without leading zeros.
func (s *scanner) digits() string {
	n := 0
	for n < len(s.rest) && '0' <= s.rest[n] && s.rest[n] <= '9' {
		n++
	}
	digits := s.rest[:n]
	s.rest = s.rest[n:]
	s.failed = s.failed || digits == "" || digits[0] == '0' && digits != "0"
	return digits
}

func (s *scanner) number() uint64 {
	n, err := strconv.ParseUint(s.digits(), 10, 64)
	s.failed = s.failed || err != nil
	return n
}

func (s *scanner) reading() int64 {
	n, err := strconv.ParseInt(s.digits(), 10, 64)
	s.failed = s.failed || err != nil
	return n
}
