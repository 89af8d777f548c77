package config

import (
	"reflect"
	"slices"
	"strings"
)

// Misspelling is an environment variable that is no setting, and has almost the name of one.
type Misspelling struct{ Variable, Setting string }

// String says so, and what was probably meant.
func (m Misspelling) String() string {
	return m.Variable + " is set, and is no setting; did you mean " + m.Setting + "?"
}

// Misspelled returns the variables of an environment, as of os.Environ, whose names differ from that of a setting by underscores,
// by ADDRESS for ADDR, by a prefix ISOTONE_, or by one letter too many, too few or transposed, sorted. A replaced letter is no
// mistake: NODE_IP is another thing than NODE_ID.
func Misspelled(environ []string) []Misspelling {
	var settings []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Flags]()) {
		if name := field.Tag.Get("env"); name != "" {
			settings = append(settings, name)
		}
	}
	var found []Misspelling
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" || len(name) < misspelledSizeMin || slices.Contains(settings, name) {
			continue
		}
		plain := plainName(name)
		i := slices.IndexFunc(settings, func(setting string) bool { return differByOne(plain, plainName(setting)) })
		if i >= 0 {
			found = append(found, Misspelling{name, settings[i]})
		}
	}
	slices.SortFunc(found, func(a, b Misspelling) int { return strings.Compare(a.Variable, b.Variable) })
	return found
}

// misspelledSizeMin is the shortest name that is compared: shorter ones are near too many others.
const misspelledSizeMin = 4

// plainName returns a name without what people write in several ways.
func plainName(name string) string {
	name = strings.TrimPrefix(strings.ToUpper(name), "ISOTONE_")
	return strings.ReplaceAll(strings.ReplaceAll(name, "ADDRESS", "ADDR"), "_", "")
}

// differByOne reports whether a is b, or becomes b when a letter is added, removed, or exchanged with the next.
func differByOne(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch {
	case a == b:
		return true
	case len(b) == len(a)+1:
		return a[i:] == b[i+1:]
	}
	return len(a) == len(b) && i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}
