package demolive

import (
	"fmt"
	"io"
	"strings"

	"github.com/isotone/isotone/internal/check/bench"
)

// barColumns is the length of the longest bar.
const barColumns = 40

// partyColors are those of the parties, as in ECMA-48.
var partyColors = []int{33, 32, 36, 35, 31}

// Screen draws a run while it goes on: on a terminal one picture, which it draws again, elsewhere a line each second.
// One goroutine uses it.
type Screen struct {
	// W is written to; errors are ignored, because a run does not end with its reader.
	W io.Writer
	// Terminal: W understands control sequences. Color: it has colours, and they are wanted.
	Terminal, Color bool

	lines int // that are drawn again
}

// Show draws what there is now.
func (s *Screen) Show(n Now) {
	if !s.Terminal {
		if n.Second != nil || n.Connected == n.Readers {
			_, _ = io.WriteString(s.W, leaders(&n.Votes)+"  "+n.line()+"\n")
		}
		return
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	} else {
		b.WriteString("\x1b[?25l\x1b[?7l") // hide the cursor, truncate long lines
	}
	lines := append(s.bars(&n.Votes), n.line())
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.W, b.String())
}

// End restores the terminal.
func (s *Screen) End() {
	if s.lines > 0 {
		_, _ = io.WriteString(s.W, "\x1b[?7h\x1b[?25h")
	}
}

// bars returns a bar for each party.
func (s *Screen) bars(v *Votes) (lines []string) {
	most := 1
	for _, p := range v.Parties {
		most = max(most, p.Votes)
	}
	for i, p := range v.Parties {
		bar := strings.Repeat("█", p.Votes*barColumns/most)
		pad := strings.Repeat(" ", barColumns-p.Votes*barColumns/most)
		if s.Color {
			bar = fmt.Sprintf("\x1b[%dm%s\x1b[0m", partyColors[i%len(partyColors)], bar)
		}
		lines = append(lines, fmt.Sprintf("  %-6s %s%s %9s  %4.1f %%", p.Name, bar, pad, bench.Group(p.Votes), v.share(i)))
	}
	return append(lines, fmt.Sprintf("  version %d, %d %% counted", v.Version, v.Counted))
}

// share returns the percentage of a party.
func (v *Votes) share(party int) float64 {
	all := 0
	for _, p := range v.Parties {
		all += p.Votes
	}
	return 100 * float64(v.Parties[party].Votes) / float64(max(1, all))
}

// leaders returns the shares of all parties in one line.
func leaders(v *Votes) string {
	list := []string{fmt.Sprintf("%3d %% counted:", v.Counted)}
	for i, p := range v.Parties {
		list = append(list, fmt.Sprintf("%s %.1f", p.Name, v.share(i)))
	}
	return strings.Join(list, " ")
}

// line says how the readers are.
func (n *Now) line() string {
	if n.Second == nil {
		return fmt.Sprintf("  %s: %s of %s readers are connected", name(n.TLS), bench.Group(n.Connected), bench.Group(n.Readers))
	}
	s := n.Second
	seen := "not yet seen"
	if s.LastMS > 0 {
		seen = fmt.Sprintf("seen after %.0f to %.0f ms", s.FirstMS, s.LastMS)
	}
	return fmt.Sprintf("  %4.0f s  %-5s  %s readers  %s events  loads %d  %s  CPU %.0f %%", s.AtS, name(s.TLS), bench.Group(n.Readers), bench.Group(s.Events), s.Loads, seen, s.CPU)
}
