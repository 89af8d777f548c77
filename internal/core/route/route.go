// Package route decides which address of a member is dialed next, and when.
//
// A node may know several addresses of one member: the one on record, and what its own settings
// say. Any of them may be out of date, so a node gives none of them up while it does not reach the
// member. The package dials nothing and reads no clock. Who answers at an address is for the
// handshake to find out: a wrong host does no harm.
package route

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// AddressesMax bounds the addresses of one member: on record, configured, and told by itself.
	AddressesMax = 3
	// AgainMax is how many attempts in a row go to the address at which the member was reached
	// last: with the pauses between them about as long as a process takes to restart. Others may
	// lead to a machine that does not answer, which costs a whole timeout.
	AgainMax = 8

	// PauseMin and PauseMax bound the pause between two attempts: a restarted node is reached well
	// within an election timeout; a missing one costs about ten attempts a second.
	PauseMin = 20 * time.Millisecond
	PauseMax = 100 * time.Millisecond
	// PauseRefused is the pause after a refusal, which only an operator or a change of membership
	// resolves.
	PauseRefused = 500 * time.Millisecond
)

// Route has the known addresses of one member, and what became of the attempts to reach it. Between
// two calls of Know, AgainMax attempts and one for each address include each of them. The zero Route
// knows no address. It is not safe for concurrent use.
type Route struct {
	known    []known // most trusted first
	attempts uint64
	latest   string // address of the latest attempt
	good     string // where the member was reached last
	again    int    // attempts that still go there
	pause    time.Duration
}

// known is one address. tried is the number of the latest attempt there, 0 for none.
type known struct {
	addr  string
	tried uint64
}

// Know replaces the known addresses (host:port), most trusted first. It ignores empty ones,
// repetitions, and those beyond AddressesMax. A new address is tried next.
func (r *Route) Know(addrs ...string) {
	var list []known
	for _, addr := range addrs {
		if addr == "" || len(list) == AddressesMax || find(list, addr) >= 0 || mutant.On(mutant.DialRecordedOnly) && len(list) > 0 {
			continue
		}
		if i := find(r.known, addr); i >= 0 {
			list = append(list, r.known[i])
			continue
		}
		list = append(list, known{addr: addr})
		r.again = 0
	}
	if find(list, r.good) < 0 {
		r.again = 0
	}
	r.known = list
}

func find(list []known, addr string) int {
	return slices.IndexFunc(list, func(k known) bool { return k.addr == addr })
}

// Addresses returns the known addresses, most trusted first.
func (r *Route) Addresses() []string {
	list := make([]string, 0, len(r.known))
	for _, k := range r.known {
		list = append(list, k.addr)
	}
	return list
}

// Next begins an attempt, and returns its address; "" if none is known.
func (r *Route) Next() string {
	if len(r.known) == 0 {
		r.latest = ""
		return ""
	}
	i := find(r.known, r.good)
	if r.again > 0 && i >= 0 {
		r.again--
	} else {
		oldest := slices.MinFunc(r.known, func(a, b known) int { return cmp.Compare(a.tried, b.tried) }) // of equals the first
		i = find(r.known, oldest.addr)
	}
	r.attempts++
	r.known[i].tried, r.latest = r.attempts, r.known[i].addr
	return r.latest
}

// At returns where the member is taken to be: where it was reached last, or else the most trusted
// address; "" if none is known.
func (r *Route) At() string {
	if len(r.known) == 0 || find(r.known, r.good) >= 0 {
		return r.good
	}
	return r.known[0].addr
}

// Reached records that the latest attempt has reached the member.
func (r *Route) Reached() { r.good, r.again = r.latest, AgainMax }

// Lasted records that a connection has lasted: the pauses begin with the shortest again.
func (r *Route) Lasted() { r.pause = PauseMin }

// Refused records that the latest attempt ended in a refusal, whoever refused.
func (r *Route) Refused() { r.pause = PauseRefused }

// Pause returns how long to wait before the next attempt: the present step, shortened by up to
// half. jitter is from 0 to 1; it keeps nodes that lost each other at the same moment from dialing
// at the same moment.
func (r *Route) Pause(jitter float64) time.Duration {
	d := r.pause
	r.pause = min(max(2*r.pause, PauseMin), PauseMax)
	return d - time.Duration(jitter*float64(d)/2)
}

// IsLocal reports whether, by its text, only its own machine can dial addr (host:port): a loopback
// address, or one that means every interface. It says no of names other than localhost.
func IsLocal(addr string) bool {
	host := strings.Trim(addr[:max(0, strings.LastIndexByte(addr, ':'))], "[]")
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host == "" || host == "localhost"
	}
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsUnspecified()
}
