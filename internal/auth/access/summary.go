package access

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary is a list of users as people and tools may see it: without secrets.
type Summary struct {
	Users []UserSummary `json:"users"` // by name
	// AddressLimits bounds what each client address may use without credentials.
	AddressLimits Limits `json:"addressLimits"`
	// SHA256 is that of the file. Two files with the same one are the same list.
	SHA256 string `json:"sha256"`
}

// UserSummary is one user of a [Summary].
type UserSummary struct {
	Name  string `json:"name"`
	Roles string `json:"roles"` // separated by commas, or "none"
	// Secrets is how many there are. A user without any can only use a certificate.
	Secrets int    `json:"secrets"`
	Limits  Limits `json:"limits,omitzero"`
	// Timeline is what requests have that name no timeline, and Timelines what they may name. Without either a user may have all, and the
	// default order.
	Timeline  string   `json:"timeline,omitempty"`
	Timelines []string `json:"timelines,omitempty"`
	// Names are the locks and groups of writers that the user may use. Without any it may use all.
	Names []string `json:"names,omitempty"`
	// Orders are both as words.
	Orders string `json:"-"`
}

// Summarize reads a list of users, as [Open] does. Its error has a line for everything that is
// wrong with it, and no secret.
func Summarize(file string) (Summary, error) {
	text, err := readFile(file)
	if err != nil {
		return Summary{}, err
	}
	users, address, err := parseList(text)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{Users: []UserSummary{}, AddressLimits: addressLimitsDefault, SHA256: sumOf(text)}
	if address != nil {
		s.AddressLimits = *address
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		u := users[name]
		s.Users = append(s.Users, UserSummary{Name: name, Roles: u.roles.String(), Secrets: len(u.secrets), Limits: u.limits,
			Timeline: u.orders.bound, Timelines: u.orders.only, Orders: u.orders.String(), Names: u.names})
	}
	return s, nil
}

func sumOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// String returns the limits as words: "requests 100/s, workers 4", or "none".
func (l Limits) String() string {
	var words []string
	add := func(limited bool, format string, n any) {
		if limited {
			words = append(words, fmt.Sprintf(format, n))
		}
	}
	add(l.Requests > 0, "requests %d/s", l.Requests)
	add(l.Timestamps > 0, "timestamps %d/s", l.Timestamps)
	add(l.Connections > 0, "connections %d", l.Connections)
	add(l.Streams > 0, "streams %d", l.Streams)
	add(l.Workers > 0, "workers %d", l.Workers)
	add(l.Sessions > 0, "sessions %d", l.Sessions)
	add(l.Locks > 0, "locks %d", l.Locks)
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}
