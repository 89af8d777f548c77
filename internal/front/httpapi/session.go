package httpapi

import (
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// The paths of sessions, locks and frontiers. A name follows.
const (
	SessionsPath = "/sessions/"
	LocksPath    = "/locks/"
	FrontierPath = "/frontier/"
	// LockListPath lists locks.
	LockListPath = "/locks"
)

// WaitMax bounds how long a request about sessions waits. One that asks for more waits for as long.
const WaitMax = 30 * time.Second

// sessionIDDigits is the length of the ID of a session in hexadecimal digits.
const sessionIDDigits = 16

// SessionQuery has the parameters of a request about sessions, locks or frontiers. Each path uses some of them.
type SessionQuery struct {
	// Session is 0 if none is named.
	Session session.ID
	// TTL is 0 unless it is named; Linger is TTL then, if it is not.
	TTL, Linger time.Duration
	// Epoch is 0 if none is named.
	Epoch  uint32
	Groups []string
	// Label says to operators whose session it is.
	Label string
	// Wait is at most [WaitMax].
	Wait  time.Duration
	Value string
	// Ticket, Token, After, Stamp and Min are zero if they are not named.
	Ticket       isotone.Timestamp
	Token, After isotone.Timestamp64
	Stamp, Min   isotone.Timestamp
	Prefix       string
	// Count is 1 unless it is named. With U64 and Ahead it is as in the Redis protocol.
	Count      uint64
	U64, Ahead bool
}

// ParseSessionQuery parses the raw query of a URL. Each parameter may occur once, but for group. Others are ignored, but must be well formed too. Errors match
// isotone.ErrInvalidArgument.
func ParseSessionQuery(raw string) (q SessionQuery, err error) {
	q.Count = 1
	seen := map[string]bool{}
	err = eachPair(raw, func(key, value string) error {
		parse := sessionParameters[key]
		if parse == nil {
			return nil
		}
		if seen[key] && key != "group" {
			return givenTwice(key)
		}
		seen[key] = true
		return parse(&q, value)
	})
	if !seen["linger"] {
		q.Linger = q.TTL
	}
	return q, err
}

// sessionParameters are the parameters of [ParseSessionQuery].
var sessionParameters = map[string]func(q *SessionQuery, value string) error{
	"session": func(q *SessionQuery, s string) (err error) {
		q.Session, err = ParseSessionID(s)
		return err
	},
	"ttl": func(q *SessionQuery, s string) (err error) {
		q.TTL, err = parseDuration("ttl", s)
		return err
	},
	"linger": func(q *SessionQuery, s string) (err error) {
		q.Linger, err = parseDuration("linger", s)
		return err
	},
	"epoch": func(q *SessionQuery, s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if q.Epoch = uint32(n); err != nil || n == 0 {
			return isotone.Errorf(isotone.CodeInvalidArgument, "epoch=%.40q: want a whole number from 1 to 4294967295, larger than those that the session had before", s)
		}
		return nil
	},
	"group": func(q *SessionQuery, s string) (err error) {
		if !slices.Contains(q.Groups, s) {
			q.Groups = append(q.Groups, s)
		}
		return checkName("group", s)
	},
	"label": func(q *SessionQuery, s string) error {
		q.Label = s
		return checkText("label", s)
	},
	"wait": func(q *SessionQuery, s string) (err error) {
		q.Wait, err = parseDuration("wait", s)
		q.Wait = min(q.Wait, WaitMax)
		return err
	},
	"value": func(q *SessionQuery, s string) error {
		q.Value = s
		return checkText("value", s)
	},
	"ticket": func(q *SessionQuery, s string) (err error) {
		q.Ticket, err = parseStamp("ticket", s)
		return err
	},
	"token": func(q *SessionQuery, s string) (err error) {
		q.Token, err = parseToken("token", s)
		return err
	},
	"after": func(q *SessionQuery, s string) (err error) {
		q.After, err = parseToken("after", s)
		return err
	},
	"stamp": func(q *SessionQuery, s string) (err error) {
		q.Stamp, err = parseStamp("stamp", s)
		return err
	},
	"min": func(q *SessionQuery, s string) (err error) {
		q.Min, err = parseStamp("min", s)
		return err
	},
	"prefix": func(q *SessionQuery, s string) error {
		q.Prefix = s
		return nil
	},
	"n": func(q *SessionQuery, s string) (err error) {
		q.Count, err = parseCount(s)
		return err
	},
	"u64": func(q *SessionQuery, s string) (err error) {
		q.U64, err = parseFlag("u64", s)
		return err
	},
	"ahead": func(q *SessionQuery, s string) (err error) {
		q.Ahead, err = parseFlag("ahead", s)
		return err
	},
}

// ParseSessionID reads the ID of a session.
func ParseSessionID(s string) (session.ID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != sessionIDDigits || n == 0 {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "session: want the ID as %d hexadecimal digits of a random number, which is not 0", sessionIDDigits)
	}
	return session.ID(n), nil
}

// NameIn returns the name that follows prefix in the path of a request.
func NameIn(u *url.URL, prefix, what string) (string, error) {
	name := strings.TrimPrefix(u.Path, prefix)
	return name, checkName(what, name)
}

// checkName checks what the core takes for a sequence of bytes: answers in JSON can show it.
func checkName(what, name string) error {
	if name == "" || !utf8.ValidString(name) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "%s: want a name, in UTF-8", what)
	}
	return nil
}

func checkText(key, s string) error {
	if !utf8.ValidString(s) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "%s: want UTF-8", key)
	}
	return nil
}

// parseDuration reads a time such as 3s or 500ms.
func parseDuration(key, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d%time.Millisecond != 0 {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%s=%.40q: want a time with its unit, in whole milliseconds, such as 3s or 500ms", key, s)
	}
	return d, nil
}

// parseStamp reads a timestamp.
func parseStamp(key, s string) (isotone.Timestamp, error) {
	t, err := isotone.ParseTimestamp(s)
	if err != nil {
		return t, isotone.Errorf(isotone.CodeInvalidArgument, "%s=%.40q: want a timestamp as %d hexadecimal digits", key, s, hex.EncodedLen(isotone.TimestampSize))
	}
	return t, nil
}

// parseToken reads the token of a lock, of either form; 0 is that of nobody.
func parseToken(key, s string) (isotone.Timestamp64, error) {
	if s == "0" {
		return 0, nil
	}
	t, ok := front.ParseFloor(s)
	if !ok {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%s=%.40q: want the token of a lock as 32 hexadecimal digits, or its token64 in decimal", key, s)
	}
	return isotone.Timestamp64From(t), nil
}

func parseFlag(key, s string) (bool, error) {
	if s != "0" && s != "1" {
		return false, isotone.Errorf(isotone.CodeInvalidArgument, "%s=%.40q: want 0 or 1", key, s)
	}
	return s == "1", nil
}
