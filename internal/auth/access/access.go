// Package access decides who may do what: it reads the list of users, checks their credentials,
// gives each connection the rights of the one it speaks for, and holds users and addresses to
// their quotas.
//
// It owns roles, secrets, sessions and quotas. It knows no protocol: a front asks the [Session]
// of a connection before it serves a request. See docs/security.md for what operators see, and
// decision 22 for why the list is a file.
//
// A [Control] is safe for concurrent use. A [Session] belongs to the goroutine of its
// connection.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Roles is a set of roles.
type Roles uint16

// The roles.
const (
	// Timestamps: requests for timestamps.
	Timestamps Roles = 1 << iota
	// IDs: Snowflake IDs that the node makes.
	IDs
	// Workers: leases of worker IDs, for clients that make IDs themselves.
	Workers
	// Live: live documents, the state of the node among them.
	Live
	// Metrics: /metrics.
	Metrics
	// Admin: everything that operators do, and profiles.
	Admin
	// Floors: moving the time of all clients ahead of the clock, by the floor of a request for timestamps.
	Floors
	// Timelines: creating and deleting the timelines that the user may use.
	Timelines
	// Locks: sessions, and locks of any name.
	Locks
	// Frontier: sessions, and writes in groups of any name.
	Frontier

	// All has every role.
	All = Timestamps | IDs | Workers | Live | Metrics | Admin | Floors | Timelines | Locks | Frontier
	// Products are what clients of a cluster use, and cannot do harm with.
	Products = Timestamps | IDs | Live
	// Local is what clients of this machine have besides, without credentials: leases of workers, which are bounded for
	// each address, sessions, and metrics. It gives no operator's rights.
	Local = Products | Workers | Metrics | Locks | Frontier
	// Alone is what clients of this machine have where nobody else can connect.
	Alone = All &^ Floors
)

var roleNames = []string{"timestamps", "ids", "workers", "live", "metrics", "admin", "floors", "timelines", "locks", "frontier"}

// String returns the names, separated by commas.
func (r Roles) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// ParseRoles reads names of roles, or "all", or "none" alone.
func ParseRoles(names []string) (Roles, error) {
	var r Roles
	for _, name := range names {
		switch i := slices.Index(roleNames, name); {
		case name == "all":
			r |= All
		case name == "none" && len(names) == 1:
		case i < 0:
			return 0, fmt.Errorf("%.40q is no role: want %s, all or none", name, strings.Join(roleNames, ", "))
		default:
			r |= 1 << i
		}
	}
	return r, nil
}

// Bounds of what a client proves with who it is, in bytes. Nodes accept nothing longer, and package
// client sends nothing longer, which keeps a wrong file from being sent as a secret.
const (
	// NameMax bounds the name of a user.
	NameMax = 64
	// SecretMax bounds a secret. One that isotone makes has 32 bytes.
	SecretMax = 256
)

// ValidName reports whether name can be that of a user: letters, digits, '.', '_' and '-', at
// most NameMax of them.
func ValidName(name string) bool {
	for i := range len(name) {
		c := name[i]
		lower := c | 0x20
		if !('0' <= c && c <= '9' || 'a' <= lower && lower <= 'z' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return name != "" && len(name) <= NameMax
}
