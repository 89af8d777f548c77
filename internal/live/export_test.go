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

// Subscribe returns the document of that name, which is nil before its first load,
// and a channel that is closed when there is another content. To follow a document
// call it again then. It reports whether there is such a name.
func (s *Set) Subscribe(name string) (now *Document, changed <-chan struct{}, ok bool) {
	e := s.entries[name]
	if e == nil {
		return nil, nil, false
	}
	d := e.current.Load()
	changed = d.content.next
	if d.content.version == 0 {
		d = nil
	}
	return d, changed, true
}
