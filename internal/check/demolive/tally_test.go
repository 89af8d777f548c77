package demolive

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func docOf(version int) string { return fmt.Sprintf(`{"version":%d,"parties":[]}`, version) }

// stream is what a node sends for documents.
func stream(docs ...string) io.Reader {
	var b strings.Builder
	for _, doc := range docs {
		fmt.Fprintf(&b, ":\n\nid: x\ndata: %s\n\n", doc)
	}
	return strings.NewReader(b.String())
}

// phase has readers follow streams of versions 1 to 3, and returns what the tally says of them.
func phase(t *testing.T, complete bool, streams ...io.Reader) (*Result, Phase) {
	t.Helper()
	tally := newTally(len(streams), 1, []byte(docOf(1)))
	tally.wrote([]byte(docOf(2)))
	tally.wrote([]byte(docOf(3)))
	for _, s := range streams {
		if err := read(s, tally); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	p, r := Phase{Readers: len(streams)}, &Result{}
	tally.fill(&p, complete)
	r.add(p, tally)
	return r, p
}

func TestTally_AllEventsAreRight(t *testing.T) {
	r, p := phase(t, true, stream(docOf(1), docOf(2), docOf(3)), stream(docOf(1), docOf(2), docOf(3)))
	if r.Err() != nil || !r.Verdict.OK || r.Verdict.Checked != 6 || p.Documents != 2 || p.Events != 4 || p.Missed+p.PassedOver+p.NotLoaded != 0 {
		t.Errorf("%+v, %+v", r.Verdict, p)
	}
}

func TestTally_NoticesAReaderThatMissesTheLastDocument(t *testing.T) {
	streams := func() []io.Reader {
		return []io.Reader{stream(docOf(1), docOf(2), docOf(3)), stream(docOf(1), docOf(2))}
	}
	r, p := phase(t, true, streams()...)
	if err := r.Err(); p.Missed != 1 || err == nil || !strings.Contains(err.Error(), "1 of 2 readers missed the last document") {
		t.Errorf("%+v, %v", p, err)
	}
	if !strings.Contains(r.Summary(), "WRONG") || !strings.Contains(r.Picture(), "WRONG") {
		t.Error(r.Summary())
	}
	if r, p = phase(t, false, streams()...); r.Err() != nil || p.Missed != 0 {
		t.Errorf("interrupted: %+v, %v", p, r.Err())
	}
}

func TestTally_CountsWhatAReaderPassesOverAndWhatNobodyGets(t *testing.T) {
	r, p := phase(t, true, stream(docOf(1), docOf(2), docOf(3)), stream(docOf(1), docOf(3)))
	if r.Err() != nil || p.PassedOver != 1 || p.NotLoaded != 0 {
		t.Errorf("%+v, %v", p, r.Err())
	}
	r, p = phase(t, true, stream(docOf(1), docOf(3)), stream(docOf(1), docOf(3)))
	if r.Err() != nil || p.PassedOver != 0 || p.NotLoaded != 1 {
		t.Errorf("%+v, %v", p, r.Err())
	}
}

// TestTally_ReadersMayCountInAnotherOrder than that in which they got the document.
func TestTally_ReadersMayCountInAnotherOrder(t *testing.T) {
	tally := newTally(3, 1, []byte(docOf(1)))
	tally.wrote([]byte(docOf(2)))
	written := tally.docs[1].written
	for _, ms := range []time.Duration{20, 30, 10} {
		tally.received(1, []byte(docOf(2)), written.Add(ms*time.Millisecond))
	}
	if first, last := tally.lag(); first != 10*time.Millisecond || last != 30*time.Millisecond {
		t.Errorf("from %v to %v, want 10 to 30 ms", first, last)
	}
}

func TestTally_NoticesWrongEvents(t *testing.T) {
	for want, events := range map[string][]string{
		"not what was written":      {docOf(1), strings.Replace(docOf(2), "[]", "[1]", 1), docOf(3)},
		"version 2 after version 3": {docOf(1), docOf(3), docOf(2)},
		"version 3 after version 3": {docOf(1), docOf(3), docOf(3)},
		"was not written":           {docOf(1), docOf(4), docOf(3)},
		"was not written: \"{}":     {docOf(1), "{}", docOf(3)},
	} {
		r, _ := phase(t, true, stream(events...))
		if err := r.Err(); err == nil || r.Verdict.Violations != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", want, r.Verdict, err)
		}
	}
}

func TestTally_NoticesAStreamThatEnds(t *testing.T) {
	tally, r := newTally(1, 1, []byte(docOf(1))), &Result{}
	tally.ended(io.ErrUnexpectedEOF)
	r.add(Phase{}, tally)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "the stream of a reader ended: unexpected EOF") {
		t.Error(err)
	}
}

func TestTally_LagIsThatOfTheLatestDocumentThatAllHave(t *testing.T) {
	tally := newTally(2, 1, []byte(docOf(1)))
	tally.wrote([]byte(docOf(2)))
	tally.wrote([]byte(docOf(3)))
	at := func(version int, after time.Duration) {
		tally.received(0, []byte(docOf(version)), tally.docs[version-1].written.Add(after))
	}
	at(2, 3*time.Second)
	at(3, time.Second)
	if first, last := tally.lag(); first != 0 || last != 0 {
		t.Error("nobody has all", first, last)
	}
	at(2, 4*time.Second)
	if first, last := tally.lag(); first != 3*time.Second || last != 4*time.Second {
		t.Error(first, last)
	}
}
