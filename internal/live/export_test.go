package live

import (
	"bufio"
	"time"
)

var (
	MatchesTag  = matchesTag
	ParseWeight = parseWeight
	AppendEvent = appendEvent
)

// ReadReply reads one reply of at most max bytes.
func ReadReply(r *bufio.Reader, max int) (int64, []byte, error) { return readReply(r, max) }

// RedisLineMax is the size of the reader that ReadReply wants.
const RedisLineMax = redisLineMax

// SourceText returns what a source is called in the log.
func SourceText(s Source) string { return s.open().String() }

// Encode does everything that a change costs.
func Encode(raw []byte, interval time.Duration) error {
	if err := check(raw, len(raw)); err != nil {
		return err
	}
	c := newContent(1, raw)
	newDocument(c, newStyle(interval, origins{}), time.Now(), -1)
	c.sse()
	return nil
}
