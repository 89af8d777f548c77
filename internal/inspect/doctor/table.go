package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteTable writes a report as text: a line for each finding and, if it is not ok, one that
// says what to do; then a summary.
func WriteTable(w io.Writer, r *Report) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Status, f.Check, oneLine(f.Subject), oneLine(f.Found))
		if f.Do != "" {
			fmt.Fprintf(t, "\t\t\tdo: %s\n", oneLine(f.Do))
		}
	}
	_ = t.Flush()
	fmt.Fprintf(&out, "\n%s: %d ok, %s, %s\n", count(len(r.Findings), "check"), r.OK, count(r.Warnings, "warning"), count(r.Problems, "problem"))
	_, err := io.WriteString(w, out.String())
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// oneLine returns text, some of which comes from other machines, without control characters.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}

// Err returns an error that counts the problems, or nil.
func (r *Report) Err() error {
	if r.Problems == 0 {
		return nil
	}
	return fmt.Errorf("%s found", count(r.Problems, "problem"))
}
