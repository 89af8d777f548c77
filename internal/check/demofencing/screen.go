package demofencing

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Colours of holders, and of what is wrong, as in ECMA-48.
var holderColors = map[string]int{"A": 36, "B": 35}

const wrongColor = 31

// Screen tells the first round as a story, and each of the others in a line. One goroutine uses it.
type Screen struct {
	// W is written to; errors are ignored, because a demo does not end with its reader.
	W io.Writer
	// Color: W has colours, and they are wanted.
	Color bool
	// TTL is that of the run.
	TTL time.Duration

	told int // events of the first round
}

// Show tells what has happened in a round since the last call.
func (s *Screen) Show(r *Round) {
	if r.Number > 1 {
		if r.Done {
			fmt.Fprintf(s.W, "round %d: A's late write is %s by the fence; the plain key has %q\n", r.Number, accepted(r.last("A", Wrote)), r.Plain)
		}
		return
	}
	for ; s.told < len(r.Events); s.told++ {
		if s.told == 0 {
			fmt.Fprintf(s.W, "%d nodes, a Redis, and a lock. Holders A and B are processes; the TTL of their sessions is %v.\n"+
				"Each writes to two keys: \"fenced\", whose fence compares the tokens of the lock, and \"plain\".\n\n", Nodes, s.TTL)
		}
		e := r.Events[s.told]
		fmt.Fprintf(s.W, "%7.3f s  %s  %s\n", e.AtS, s.paint(holderColors[e.Holder], e.Holder), s.tale(r, e))
	}
	if r.Done {
		fmt.Fprintf(s.W, "\n%-10s %q%s\n%-10s %q%s\n\n", "fenced", r.Fenced, s.lost(r.Fenced), "plain", r.Plain, s.lost(r.Plain))
	}
}

// lost says what is wrong with what a key has in the end.
func (s *Screen) lost(value string) string {
	if value == valueB {
		return ""
	}
	return s.paint(wrongColor, ": "+valueB+" is lost")
}

// tale is an event in words.
func (s *Screen) tale(r *Round, e Event) string {
	switch e.What {
	case Locked:
		text := fmt.Sprintf("holds the lock, token %d", e.Token)
		if e.Holder == "B" {
			text += ": A's session has ended"
		}
		return text
	case Waited:
		return "waits for the lock"
	case Paused:
		return "is paused (SIGSTOP) in the middle of its work, with the lock"
	case Resumed:
		return "goes on (SIGCONT), and knows of nothing"
	}
	text := fmt.Sprintf("writes %q", e.Value)
	if e.Fence == "" {
		return text + ": fenced ✓  plain ✓"
	}
	return fmt.Sprintf("%s: %s  plain ✓\n              token %d is below the fence, which is at B's %d", text, s.paint(wrongColor, "fenced ✗ refused"), e.Token, r.last("B", Locked).Token)
}

// accepted says what became of a write.
func accepted(e Event) string {
	if e.Fence == "" {
		return "accepted"
	}
	return "refused"
}

func (s *Screen) paint(color int, text string) string {
	if !s.Color || strings.TrimSpace(text) == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, text)
}
