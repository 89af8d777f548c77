// Package certname owns the names in the certificates of nodes and clients: their form, and
// which node a name stands for.
//
// It decides by text alone: it reads no file, knows no connection and verifies no signature.
// internal/host/config parses PEER_ALLOWED_NAMES with it, internal/node asks it about a
// certificate that was verified, and internal/auth/authority writes the names.
package certname

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// nodeIDMax is that of NODE_ID.
	nodeIDMax = 1<<48 - 1
	// rulesMax bounds the entries of PEER_ALLOWED_NAMES: one for each node of a large cluster.
	rulesMax = 64
	// nameSizeMax is the longest name in bytes. A DNS name has at most 253; a SPIFFE ID may be
	// longer, but not one that names a node.
	nameSizeMax = 512
	// trustDomainSizeMax is SPIFFE's.
	trustDomainSizeMax = 255
)

const (
	scheme     = "spiffe://"
	nodePath   = "/isotone/node/"
	clientPath = "/isotone/client/"
)

// The placeholders of a pattern.
const (
	placeID      = "{id}"
	placeOrdinal = "{ordinal}"
)

// Node returns the name of a node in a trust domain, as in spiffe://isotone/isotone/node/1.
func Node(trustDomain string, id uint64) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: nodePath + strconv.FormatUint(id, 10)}
}

// Client returns the name of a client in a trust domain, as in
// spiffe://isotone/isotone/client/orders.
func Client(trustDomain, name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: clientPath + name}
}

// ValidTrustDomain reports whether s is the trust domain of a SPIFFE ID: 1 to 255 lower-case
// letters, digits, dots, dashes and underscores.
func ValidTrustDomain(s string) bool {
	return s != "" && len(s) <= trustDomainSizeMax && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// ValidClient reports whether s is the name of a client: 1 to 64 letters, digits, dots, dashes
// and underscores, of which not all are dots.
func ValidClient(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	return len(s) <= 64 && strings.Trim(s, ".") != "" && strings.Trim(s, allowed) == ""
}

// ValidHost reports whether s may be a DNS name: up to 253 bytes, labels of letters, digits, dashes
// and underscores with dots between them.
func ValidHost(s string) bool {
	return len(s) <= 253 && !strings.HasPrefix(s, scheme) && validName(strings.ToLower(s))
}

// Rules say which node a name stands for. The zero value has the rule that the certificates of
// "isotone cert node" follow: spiffe://TRUST-DOMAIN/isotone/node/ID, in any trust domain. Rules
// do not change, and any goroutine may use them.
type Rules struct {
	exact    []exact
	patterns []pattern
	text     string
}

// exact is the rule ID=NAME.
type exact struct {
	id   uint64
	name string
}

// pattern is a name with a placeholder for the number of a node.
type pattern struct {
	before, after string
	add           uint64 // what makes a node ID of the number
}

// Fault is one entry of PEER_ALLOWED_NAMES that cannot be used.
type Fault struct {
	Entry, Want string
}

// Parse parses PEER_ALLOWED_NAMES: entries with commas between them. An entry is ID=NAME, or a
// name with one {id}, which stands for the ID of a node, or one {ordinal}, the ID less one. A name
// is a DNS name or a SPIFFE ID. No text means the zero Rules.
func Parse(text string) (Rules, []Fault) {
	if strings.TrimSpace(text) == "" {
		return Rules{}, nil
	}
	r, faults := Rules{text: text}, []Fault(nil)
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		want := r.add(entry)
		if i == rulesMax {
			want = fmt.Sprintf("want at most %d entries; one with {id} is for all nodes", rulesMax)
		}
		if want != "" {
			faults = append(faults, Fault{entry, want})
		}
		if i == rulesMax {
			break
		}
	}
	if faults != nil {
		return Rules{}, faults
	}
	return r, nil
}

// add adds an entry, or returns what is wanted instead.
func (r *Rules) add(entry string) (want string) {
	// A name has no "=", so the first one ends an ID.
	number, name, isExact := strings.Cut(entry, "=")
	if isExact {
		id, ok := parseID(number)
		switch name = fold(name); {
		case !ok:
			return "want ID=NAME with a node ID of 1 or more"
		case !validName(name):
			return wantName
		case slices.ContainsFunc(r.exact, func(e exact) bool { return e.name == name }):
			return "want every name once: a certificate with that name would be that of two nodes"
		}
		r.exact = append(r.exact, exact{id, name})
		return ""
	}
	name = fold(entry)
	place, add := placeID, uint64(0)
	if strings.Contains(name, placeOrdinal) {
		place, add = placeOrdinal, 1
	}
	before, after, found := strings.Cut(name, place)
	switch {
	case !found:
		return "want ID=NAME, as in 1=node1.example.com, or a name with {id} or {ordinal}, as in node{id}.example.com: a name without would not tell nodes apart"
	case !validName(before + "1" + after):
		return wantName
	}
	r.patterns = append(r.patterns, pattern{before, after, add})
	return ""
}

const wantName = "want a DNS name without wildcards, or a SPIFFE ID such as spiffe://example.com/isotone/node/1, with at most one placeholder"

// String returns the rules as they are set, or the one that the zero value has.
func (r Rules) String() string {
	if r.text == "" {
		return scheme + "TRUST-DOMAIN" + nodePath + placeID
	}
	return r.text
}

// Text returns what Parse was given, "" for the zero value.
func (r Rules) Text() string { return r.text }

// Node returns the node that a name in a certificate stands for: a DNS name, or a URI. It
// returns false for a name that stands for none, or by several rules for several nodes.
func (r Rules) Node(name string) (id uint64, ok bool) {
	if len(name) > nameSizeMax {
		return 0, false
	}
	if r.text == "" {
		return defaultNode(name)
	}
	name = fold(name)
	take := func(found uint64) bool {
		if ok && found != id {
			return false
		}
		id, ok = found, true
		return true
	}
	for _, e := range r.exact {
		if e.name == name && !take(e.id) {
			return 0, false
		}
	}
	for _, p := range r.patterns {
		if found, matches := p.node(name); matches && !take(found) {
			return 0, false
		}
	}
	return id, ok
}

// Nodes returns the nodes that a certificate is for, by its DNS names and URIs. Its common name
// does not count.
func (r Rules) Nodes(cert *x509.Certificate) (ids []uint64) {
	for _, name := range Names(cert) {
		if id, ok := r.Node(name); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Names returns the URIs and DNS names of a certificate.
func Names(cert *x509.Certificate) (names []string) {
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return append(names, cert.DNSNames...)
}

func (p pattern) node(name string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, p.before)
	if !ok {
		return 0, false
	}
	number, ok := strings.CutSuffix(rest, p.after)
	if !ok {
		return 0, false
	}
	n, ok := parseNumber(number)
	if n += p.add; !ok || n < 1 || n > nodeIDMax {
		return 0, false
	}
	return n, true
}

// defaultNode is the rule of the zero Rules.
func defaultNode(name string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, scheme)
	if !ok {
		return 0, false
	}
	domain, number, ok := strings.Cut(rest, nodePath)
	if !ok || !ValidTrustDomain(domain) {
		return 0, false
	}
	return parseID(number)
}

func parseID(text string) (uint64, bool) {
	n, ok := parseNumber(text)
	return n, ok && n >= 1 && n <= nodeIDMax
}

// parseNumber accepts one spelling of each number: digits, no leading zeros.
func parseNumber(text string) (uint64, bool) {
	if text == "" || len(text) > 1 && text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > nodeIDMax {
		return 0, false
	}
	return n, true
}

// fold returns a DNS name in lower case, which is how they are compared. The path of a SPIFFE ID
// distinguishes cases.
func fold(name string) string {
	if strings.HasPrefix(name, scheme) {
		return name
	}
	return strings.ToLower(name)
}

func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	if name == "" || len(name) > nameSizeMax {
		return false
	}
	if rest, ok := strings.CutPrefix(name, scheme); ok {
		domain, path, found := strings.Cut(rest, "/")
		return found && path != "" && ValidTrustDomain(domain) && strings.Trim(path, letters+"ABCDEFGHIJKLMNOPQRSTUVWXYZ./") == ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, letters) != "" {
			return false
		}
	}
	return true
}
