package live

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live/store"
)

// reserved are the names that a setting cannot give: state is the node's own.
var reserved = []string{"state"}

// settingBytesMax bounds the text of a setting: 64 long entries.
const settingBytesMax = 64 << 10

// Fault is what is wrong with one entry of a setting.
type Fault struct {
	// Entry is the name of the document, or what stands in its place, or "entry 2" where
	// that might be a part of a password, or the origin.
	Entry string
	// Want says what would be right. It repeats no URL, which may have a password.
	Want string
}

// Error returns "entry: want".
func (f Fault) Error() string { return f.Entry + ": " + f.Want }

// Is reports whether target is isotone.ErrInvalidArgument.
func (f Fault) Is(target error) bool { return target == isotone.ErrInvalidArgument }

// Faults is everything that is wrong with a setting, in its order.
type Faults []Fault

// Error returns all faults, one after the other.
func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, fault := range f {
		all[i] = fault
	}
	return all
}

// orNil returns nil if there are none.
func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Parse reads the setting LIVE, name=source and more of them after commas:
//
//	scores=file:scores.json,votes=redis://host:6379/0#votes,feed=https://host/feed
//
// A source is file:PATH, redis:// or rediss:// (TLS) with a key after "#", http:// or
// https://, or a database as [store.Parse] reads it. A comma always ends an entry; in a URL write %2C. Blanks around an
// entry mean nothing, and an empty text means no documents. A name is 1 to 64 of a-z,
// 0-9 and "-", occurs once and is not reserved. The error is [Faults], with every
// fault. Nothing is opened.
func Parse(text string) ([]Source, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > settingBytesMax {
		return nil, Faults{{"the setting", fmt.Sprintf("want at most %d bytes", settingBytesMax)}}
	}
	var sources []Source
	var faults Faults
	names := map[string]bool{}
	entries := strings.Split(text, ",")
	for i, entry := range entries {
		name, from, ok := strings.Cut(strings.TrimSpace(entry), "=")
		place := "entry " + strconv.Itoa(i+1)
		if harmless(name, entries[:i]) {
			place = strconv.Quote(name)
		}
		if !ok {
			faults = append(faults, Fault{place, "want name=source"})
			continue
		}
		if !isName(name) {
			faults = append(faults, Fault{place, "want a name of " + nameRule})
		} else {
			place = strconv.Quote(name)
			if slices.Contains(reserved, name) {
				faults = append(faults, Fault{place, "this name is reserved"})
			}
			if names[name] {
				faults = append(faults, Fault{place, "want every name once"})
			}
			names[name] = true
		}
		open, err := parseSource(from)
		if err != nil {
			faults = append(faults, Fault{place, err.Error()})
			continue
		}
		sources = append(sources, Source{name, open})
	}
	if len(entries) > DocumentsMax {
		faults = append(faults, Fault{"the setting", fmt.Sprintf("want at most %d documents", DocumentsMax)})
	}
	if faults != nil {
		return nil, faults
	}
	return sources, nil
}

// harmless reports whether a message may repeat what stands in the place of a name: plain
// letters, behind no URL, because a comma in its password would have ended that.
func harmless(name string, before []string) bool {
	for _, entry := range before {
		if _, source, _ := strings.Cut(entry, "="); !strings.HasPrefix(source, "file:") && strings.ContainsAny(entry, ":@") {
			return false
		}
	}
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-", c))
	})
}

func parseSource(text string) (open func() loader, err error) {
	scheme, rest, ok := strings.Cut(text, ":")
	switch scheme = strings.ToLower(scheme); {
	case ok && scheme == "file":
		return parseFile(rest)
	case ok && (scheme == "redis" || scheme == "rediss"):
		u, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		return parseRedis(u)
	case ok && (scheme == "http" || scheme == "https"):
		u, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		if u.Fragment != "" {
			return nil, errors.New(`want a URL without "#"`)
		}
		return func() loader { return newFetch(u) }, nil
	case ok && slices.Contains(store.Schemes, scheme):
		return parseDatabase(text)
	}
	return nil, errors.New("want a source: file:PATH, or a URL with redis, rediss, http, https, mongodb, mongodb+srv or postgres")
}

// parseFile reads what follows "file:", a path or "//" and an absolute one.
func parseFile(rest string) (open func() loader, err error) {
	path := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		path = strings.TrimPrefix(after, "localhost")
		if !strings.HasPrefix(path, "/") {
			return nil, errors.New("want file:PATH or file:///PATH, of this machine")
		}
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, errors.New("want a path after the scheme")
	}
	return func() loader { return file(path) }, nil
}

// parseURL parses a URL with a host. Its error does not have the text.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		// Neither the text nor a part of it: what looks like a port may be a password.
		return nil, errors.New("want a valid URL; escape what is special in a password, a path or a key")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if u.Host == "" || u.Hostname() == "" || u.Opaque != "" || u.Port() != "" && (err != nil || port == 0) {
		return nil, errors.New("want a URL with a host, and a port from 1 to 65535 if any")
	}
	return u, nil
}

// shown returns a URL for people: without user, password and query.
func shown(u *url.URL) string {
	plain := *u
	plain.User, plain.RawQuery, plain.ForceQuery = nil, "", false
	return plain.String()
}
