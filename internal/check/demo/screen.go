package demo

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// rowColumns is how many columns a row of the screen has, and rowMargin what stands left of them.
	// With the rate to the right, a row fits into 80 characters.
	rowColumns = 60
	rowMargin  = 9
	// barLines is the height of a row's bars in lines, each of which shows barLevels heights.
	barLines  = 2
	barLevels = 8
)

// bars are the heights of a bar within a line.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// Colours of nodes by ID, from 1, and of what is wrong, as in ECMA-48. 0 is the default colour.
var nodeColors = []int{36, 33, 35}

const wrongColor = 31

// Screen draws a [Result] that grows. On a terminal it draws a timeline, of which it updates the
// last two rows; elsewhere it writes a line for each event. It is used by one goroutine at a time.
type Screen struct {
	// W is written to; errors are ignored, because a demo does not end with its reader.
	W io.Writer
	// Terminal: W understands control sequences. Color: it has colours, and they are wanted.
	Terminal, Color bool

	begun bool
	done  int // rows that are not drawn again, or kills that have their line
	lines int // below the rows that are done
}

// Show draws r, which has grown since the last call.
func (s *Screen) Show(r *Result) {
	if !s.Terminal {
		s.showPlain(r)
		return
	}
	var b strings.Builder
	if !s.begun {
		b.WriteString("\x1b[?25l\x1b[?7l") // hide the cursor, truncate long lines
		b.WriteString(intro(r))
		s.begun = true
	}
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	s.lines = 0
	rows := (len(r.Columns) + rowColumns - 1) / rowColumns
	for i := s.done; i < rows; i++ {
		lines := row(r, i, s.Color)
		for _, line := range lines {
			b.WriteString(line + "\x1b[K\n")
		}
		if i < rows-2 {
			s.done++
		} else {
			s.lines += len(lines)
		}
	}
	_, _ = io.WriteString(s.W, b.String())
}

// End draws r for the last time, and restores the terminal. r may be nil.
func (s *Screen) End(r *Result) {
	if r != nil {
		s.Show(r)
	}
	if s.Terminal && s.begun {
		_, _ = io.WriteString(s.W, "\x1b[?7h\x1b[?25h")
	}
}

// Timeline returns the whole run as a terminal shows it in the end.
func (r *Result) Timeline(color bool) string {
	var b strings.Builder
	b.WriteString(intro(r))
	for i := range (len(r.Columns) + rowColumns - 1) / rowColumns {
		b.WriteString(strings.Join(row(r, i, color), "\n") + "\n")
	}
	return b.String()
}

// intro says what is drawn.
func intro(r *Result) string {
	return fmt.Sprintf("%d nodes, %d clients that ask for timestamps; every answer is checked.\n"+
		"A column is %d ms. ✗ is where the leader is %s, and how long no client had an answer.\n\n",
		r.Nodes, r.Clients, r.ColumnMS, r.How.done())
}

// showPlain writes a line for each kill whose gap is known.
func (s *Screen) showPlain(r *Result) {
	if !s.begun {
		fmt.Fprintf(s.W, "%d nodes, %d clients that ask for timestamps; every answer is checked.\n", r.Nodes, r.Clients)
		s.begun = true
	}
	for s.done < len(r.Kills) && r.Kills[s.done].Closed {
		k := r.Kills[s.done]
		fmt.Fprintf(s.W, "%6.2f s  node %d, the leader, is %s; %s; no client had an answer for %s\n",
			k.AtS, k.Node, r.How.done(), next(k), gapText(k.GapMS))
		s.done++
	}
}

func next(k Kill) string {
	if k.Successor == 0 {
		return "no node leads after it"
	}
	return fmt.Sprintf("node %d leads after it", k.Successor)
}

// gapText returns a time in milliseconds with two digits or more.
func gapText(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// row returns the lines of one row: its bars, then who leads and what happened.
func row(r *Result, i int, color bool) []string {
	from := i * rowColumns
	columns := r.Columns[from:min(len(r.Columns), from+rowColumns)]
	most, answers := uint32(1), uint32(0)
	for _, c := range r.Columns {
		most = max(most, c.Answers)
	}
	for _, c := range columns {
		answers += c.Answers
	}
	span := min(float64(len(columns)*r.ColumnMS)/1000, r.Seconds-float64(from*r.ColumnMS)/1000)
	lines := []string{
		fmt.Sprintf("%5.1f s  ", float64(from*r.ColumnMS)/1000),
	}
	for len(lines) < barLines {
		lines = append(lines, strings.Repeat(" ", rowMargin))
	}
	for line := range lines {
		lines[line] += barLine(columns, most, barLines-1-line, color)
	}
	pad := strings.Repeat(" ", rowColumns-len(columns))
	lines[barLines-1] += pad + fmt.Sprintf("  %d/s", int(float64(answers)/max(span, 0.001)))
	return append(lines, strings.Repeat(" ", rowMargin)+labels(r, from, len(columns), color))
}

// barLine returns a line of bars; lines are counted from below.
func barLine(columns []Column, most uint32, line int, color bool) string {
	var b strings.Builder
	p := painter{out: &b, on: color}
	for _, c := range columns {
		level := int((uint64(c.Answers)*barLines*barLevels + uint64(most) - 1) / uint64(most))
		switch level = min(max(level-line*barLevels, 0), barLevels); {
		case c.Answers == 0 && line == 0:
			p.paint(wrongColor, "·")
		case level == 0:
			p.paint(0, " ")
		default:
			p.paint(nodeColor(c.Leader), string(bars[level]))
		}
	}
	p.paint(0, "")
	return b.String()
}

// label is a text below a row, from a column on.
type label struct {
	at, color int
	text      string
}

// labels returns the line below the bars of the count columns from from on.
func labels(r *Result, from, count int, color bool) string {
	var list []label
	if count > 0 && r.Columns[from].Leader != 0 {
		leader := r.Columns[from].Leader
		list = append(list, label{text: fmt.Sprintf("node %d leads", leader), color: nodeColor(leader)})
	}
	for _, k := range r.Kills {
		at := int(k.AtS*1000)/r.ColumnMS - from
		if at < 0 || at >= rowColumns || at >= count {
			continue
		}
		text := "✗ " + gapText(k.GapMS)
		if k.Successor != 0 {
			text += fmt.Sprintf(" → node %d", k.Successor)
		}
		list = append(list, label{at: min(at, rowColumns-utf8.RuneCountInString(text)), text: text, color: wrongColor})
	}
	var b strings.Builder
	p := painter{out: &b, on: color}
	end := 0
	for i, l := range list {
		if i+1 < len(list) && l.color != wrongColor && l.at+len(l.text) >= list[i+1].at {
			continue // the kill is more important
		}
		p.paint(0, strings.Repeat(" ", max(l.at-end, min(end, 1))))
		end = max(l.at, end+min(end, 1)) + utf8.RuneCountInString(l.text)
		p.paint(l.color, l.text)
	}
	p.paint(0, "")
	return b.String()
}

func nodeColor(id uint64) int {
	if id == 0 {
		return wrongColor
	}
	return nodeColors[(id-1)%uint64(len(nodeColors))]
}

// painter writes texts in colours. It changes the colour only where it must.
type painter struct {
	out *strings.Builder
	on  bool
	now int
}

// paint writes a text. Blanks keep the colour that is set; color 0 with "" resets it.
func (p *painter) paint(color int, text string) {
	if p.on && color != p.now && (strings.TrimSpace(text) != "" || text == "") {
		fmt.Fprintf(p.out, "\x1b[%dm", color)
		p.now = color
	}
	p.out.WriteString(text)
}
