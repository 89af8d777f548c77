package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Check is one check of a health endpoint.
type Check struct {
	Name string
	// Failed says why the check fails; empty if it passes.
	Failed string
}

// Health returns the answer of the health endpoint name, such as readyz, to a request with
// that raw query, in the form of the API server of Kubernetes, and whether all checks pass.
// If so, the body is "ok" unless the query has the parameter verbose. Otherwise it has one line
// for each check and a verdict. A check that the query names with exclude does not count; the
// parameter may be repeated.
func Health(name string, checks []Check, rawQuery string) (body string, ok bool) {
	query, _ := url.ParseQuery(rawQuery) // as the API server, without what cannot be parsed
	excluded := query["exclude"]
	var lines strings.Builder
	ok = true
	for _, c := range checks {
		switch {
		case slices.Contains(excluded, c.Name):
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
		case c.Failed != "":
			ok = false
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.Name, oneLine(c.Failed))
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
	}
	switch {
	case !ok:
		return fmt.Sprintf("%s%s check failed\n", lines.String(), name), false
	case query.Has("verbose"):
		return fmt.Sprintf("%s%s check passed\n", lines.String(), name), true
	}
	return "ok", true
}

// oneLine replaces control characters: reasons may quote other machines.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
