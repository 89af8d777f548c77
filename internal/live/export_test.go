package live

import "time"

var (
	MatchesTag  = matchesTag
	ParseWeight = parseWeight
	AppendEvent = appendEvent
)

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
