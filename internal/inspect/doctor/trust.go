package doctor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/certname"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// Trust is what the files of a node's settings say about users and peers, as the node would read
// them now.
type Trust struct {
	Security front.Security
	// ACLFile and PeerCert name the files; "" if the settings do not.
	ACLFile, PeerCert string
	// UsersError and PeersError are why the node would not start with them, else empty.
	UsersError, PeersError string
}

// sumShown is how many digits of a SHA-256 are enough to tell lists apart.
const sumShown = 16

// teller is a node, or this machine, that tells who may reach it.
type teller struct {
	name string
	*front.Security
	lastMove *survey.Move
}

// tellers returns the nodes that tell, and the names of those that do not although they answer.
func (c *Cluster) tellers() (list []teller, silent []uint64) {
	for i, v := range c.Report.Views {
		switch s := c.Nodes[i].Security; {
		case s != nil:
			list = append(list, teller{name(v), s, c.Nodes[i].LastMove})
		case v.State != nil:
			silent = append(silent, v.NodeID)
		}
	}
	return list, silent
}

// localTrust judges the files on this machine.
func (j *findings) localTrust(m *Measurements) {
	t := m.Local.Trust
	switch {
	case t == nil:
		return
	case t.UsersError != "":
		j.add(Problem, "users", "ACL_FILE", t.UsersError, "correct the list; isotone user check says whether a node accepts it")
	case t.Security.Users != nil:
		j.ok("users", "ACL_FILE", "%s, SHA-256 %s", count(t.Security.Users.Users, "user"), t.Security.Users.SHA256)
	}
	j.allRoles("TLS_CLIENT_CA", &t.Security)
	switch {
	case t.PeersError != "" && t.PeerCert == "":
		j.add(Problem, "clear", "PEERS", t.PeersError, "set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA: isotone cert ca, isotone cert node")
	case t.PeersError != "":
		j.add(Problem, "certificate", "PEER_TLS_CERT", t.PeersError, "correct the files; isotone cert node makes a certificate for this node")
	case t.Security.Peers != nil:
		j.peerCertificate(m.At, "PEER_TLS_CERT", t.Security.Peers)
		j.revocations(m.At, "PEER_TLS_CRL", t.Security.Peers)
	}
}

// trust judges and compares what the nodes say about users and peers.
func (j *findings) trust(m *Measurements) {
	list, silent := m.Cluster.tellers()
	if len(silent) > 0 {
		j.ok("users", "", "node %s does not tell who may reach it: that takes the role admin (--endpoint unix:DATA_DIR/operator.sock on its machine, or --user), and this version", joined(silent))
	}
	for _, n := range list {
		j.allRoles(n.name, n.Security)
		j.whoMoved(n.name, n.Security)
		if n.lastMove != nil {
			j.lastMove(m.At, n.name, n.lastMove)
		}
		if n.Users != nil && n.Users.Refused {
			j.add(Problem, "users", n.name, "the file of ACL_FILE cannot be used; the list before stays in force", "correct the file; isotone user check says what is wrong with it")
		}
		if n.Peers != nil {
			j.peerCertificate(m.At, n.name+", peers", n.Peers)
			j.revocations(m.At, n.name, n.Peers)
		}
	}
	j.sameUsers(list, m.Local)
	j.samePeers(list)
}

// allRoles warns of certificates of clients that give all roles.
func (j *findings) allRoles(subject string, s *front.Security) {
	if s.ClientCA && s.Users == nil {
		j.add(Warning, "users", subject, "each client with a certificate of an authority in TLS_CLIENT_CA has all roles, also admin: there is no ACL_FILE",
			"set ACL_FILE to a list of users that says who may do what; see docs/security.md")
	}
}

// whoMoved warns of clients that have moved time, and of operators who come in a way that gives no rights.
func (j *findings) whoMoved(subject string, s *front.Security) {
	for _, user := range slices.Sorted(maps.Keys(s.MovedTime)) {
		j.add(Warning, "floors", subject, fmt.Sprintf("the floors of user %s have moved time ahead of the clock, for all clients: %s since the node started", user, count(int(min(s.MovedTime[user], math.MaxInt)), "time")),
			"if the cluster was not set back, take the role floors from that user")
	}
	if s.RefusedHere > 0 {
		j.add(Warning, "users", subject, fmt.Sprintf("%s of operators came from its own machine over TCP without credentials, and were refused", count(int(min(s.RefusedHere, math.MaxInt)), "request")),
			"use the Unix socket operator.sock in DATA_DIR (--endpoint unix:PATH, the default of commands there), or give operators credentials (ACL_FILE)")
	}
}

// lastMove names who has moved time far ahead of the clock last, and warns while it is still ahead.
func (j *findings) lastMove(at time.Time, subject string, m *survey.Move) {
	by := "the floor of a request of user " + m.User
	if m.Operator {
		by = "a floor that operator " + m.User + " has raised"
	}
	text := fmt.Sprintf("%s, from %s, has moved time %v ahead of the clock at %s, to %s", by, m.Client,
		time.Duration(m.AheadSeconds*float64(time.Second)).Round(time.Millisecond), m.At.Format(time.RFC3339), m.To.Format(time.RFC3339))
	if m.To.After(at) {
		j.add(Warning, "floors", subject, text+": time stands still until the clock has caught up", "wait; timestamps are issued meanwhile, and those of 64 bits are fewer")
		return
	}
	j.ok("floors", subject, "%s", text)
}

// sameUsers compares the lists of users; that of a file on this machine is one of them.
func (j *findings) sameUsers(list []teller, l *Local) {
	if l != nil && l.Trust != nil && l.Trust.Security.Users != nil && len(list) > 0 {
		list = append(slices.Clone(list), teller{"ACL_FILE here", &l.Trust.Security, nil})
	}
	by := map[string][]string{}
	for _, n := range list {
		sum := ""
		if n.Users != nil {
			sum = n.Users.SHA256
		}
		by[sum] = append(by[sum], n.name)
	}
	if len(by) == 1 {
		if sum := list[0].Users; sum != nil && len(list) > 1 {
			j.ok("users", "", "one list: %s, SHA-256 %s", count(sum.Users, "user"), sum.SHA256)
		}
		return
	}
	var words []string
	for _, sum := range slices.Sorted(maps.Keys(by)) {
		what := "no list"
		if sum != "" {
			what = "SHA-256 " + sum[:min(len(sum), sumShown)] + "…"
		}
		words = append(words, strings.Join(by[sum], ", ")+": "+what)
	}
	if len(words) > 0 {
		j.add(Problem, "users", "", "the nodes have different lists of users: "+strings.Join(words, "; "),
			"copy the right list to ACL_FILE of each node (isotone user check prints its SHA-256); nodes read it within seconds, and ACL_FILE itself at their start")
	}
}

// peerCertificate judges a certificate for peers.
func (j *findings) peerCertificate(at time.Time, subject string, p *front.PeerCertificates) {
	const check, do = "certificate", "make a new one (isotone cert node ID … --overwrite) and replace the files; the node reads them again by itself"
	left := p.NotAfter.Sub(at)
	switch {
	case left <= 0:
		j.add(Problem, check, subject, fmt.Sprintf("ended on %s: peers refuse it", day(p.NotAfter)), do)
	case at.Before(p.NotBefore):
		j.add(Problem, check, subject, fmt.Sprintf("begins on %s only: peers refuse it", day(p.NotBefore)), "check the clock of this machine, or "+do)
	case p.Revoked:
		j.add(Problem, check, subject, "is revoked: peers with the same list refuse it", do)
	case left < expiryWarning:
		j.add(Warning, check, subject, fmt.Sprintf("ends on %s, in %s; peers refuse it then", day(p.NotAfter), count(int(left.Hours()/24), "day")), do)
	default:
		j.ok(check, subject, "valid until %s, for %s", day(p.NotAfter), strings.Join(p.Names, ", "))
	}
	for _, a := range p.Authorities {
		if ends := a.NotAfter.Sub(at); ends < expiryWarning && a.SHA256 != p.SignedBy {
			j.add(Warning, check, subject, fmt.Sprintf("the authority %s in PEER_TLS_CA ends, or has ended, on %s", a.Subject, day(a.NotAfter)), "remove it from PEER_TLS_CA once no node has a certificate of it (isotone cert ca --retire)")
		}
	}
}

// revocations judges the age of the lists. One that was to be replaced by now counts as well, so
// its age only says that newer ones do not arrive.
func (j *findings) revocations(at time.Time, subject string, p *front.PeerCertificates) {
	for _, l := range p.Lists {
		switch {
		case l.ThisUpdate.After(at):
			j.add(Warning, "revocation", subject, fmt.Sprintf("the list of %s begins on %s only", l.Issuer, day(l.ThisUpdate)), "check the clock of this machine, and of the one that makes the list; it counts all the same")
		case !l.NextUpdate.IsZero() && !at.Before(l.NextUpdate):
			j.add(Warning, "revocation", subject, fmt.Sprintf("the list of %s is from %s, and was to be replaced by %s; it counts all the same", l.Issuer, day(l.ThisUpdate), day(l.NextUpdate)),
				"copy the newest list of this authority to PEER_TLS_CRL of each node; see whether it is still made")
		default:
			j.ok("revocation", subject, "%s of %s, from %s", count(l.Revoked, "certificate"), l.Issuer, day(l.ThisUpdate))
		}
	}
}

// samePeers compares what nodes show their peers with what they accept.
func (j *findings) samePeers(list []teller) {
	var with, clear, insecure []string
	for _, n := range list {
		switch {
		case n.Peers == nil:
			clear = append(clear, n.name)
		case n.PeersInClear:
			insecure = append(insecure, n.name)
		}
		if n.Peers != nil {
			with = append(with, n.name)
		}
	}
	switch {
	case len(with) > 0 && len(clear) > 0:
		j.add(Problem, "clear", "", fmt.Sprintf("%s: peers in plaintext; %s: with certificates", strings.Join(clear, ", "), strings.Join(with, ", ")),
			"set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA on all nodes; see docs/security.md, from clear to TLS")
	case len(insecure) > 0:
		j.add(Warning, "clear", "", strings.Join(insecure, ", ")+": peers in plaintext are accepted (PEER_INSECURE=1) beside those with TLS", "remove PEER_INSECURE from each node, now that all have certificates")
	case len(with) == 0 && slices.ContainsFunc(list, func(n teller) bool { return n.PeersInClear }):
		j.add(Warning, "clear", "", "peers speak in plaintext (PEER_INSECURE=1): whoever reaches RAFT_ADDR can take the place of a node", "set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA; see docs/security.md")
	}
	for _, of := range list {
		for _, by := range list {
			if of.Peers != nil && by.Peers != nil && of.NodeID != by.NodeID {
				j.accepted(of, by)
			}
		}
	}
	j.sameSets(list, "authority", "authorities (PEER_TLS_CA)", Warning, func(p *front.PeerCertificates) (sums []string) {
		for _, a := range p.Authorities {
			sums = append(sums, a.SHA256)
		}
		return sums
	})
	j.sameSets(list, "revocation", "revocation lists (PEER_TLS_CRL)", Problem, func(p *front.PeerCertificates) (sums []string) {
		for _, l := range p.Lists {
			sums = append(sums, l.SHA256)
		}
		return sums
	})
}

// accepted judges whether a node would accept the certificate of another one.
func (j *findings) accepted(of, by teller) {
	subject := of.name + " by " + by.name
	if of.Peers.SignedBy != "" && !slices.ContainsFunc(by.Peers.Authorities, func(a front.Authority) bool { return a.SHA256 == of.Peers.SignedBy }) {
		j.add(Problem, "authority", subject, "the authority that has signed the certificate is not in PEER_TLS_CA of the other node, which refuses it", "copy ca.pem with all authorities in use to all nodes; see docs/security.md, a new authority")
	}
	rules, faults := certname.Parse(by.Peers.AllowedNames)
	isNode := func(name string) bool {
		id, ok := rules.Node(name)
		return ok && id == of.NodeID
	}
	if faults == nil && !slices.ContainsFunc(of.Peers.Names, isNode) {
		j.add(Problem, "certificate", subject, fmt.Sprintf("the certificate has %.200s, which is not the name of node %d by PEER_ALLOWED_NAMES of the other node: %.200s", strings.Join(of.Peers.Names, ", "), of.NodeID, rules),
			"give the node a certificate with its name, or set PEER_ALLOWED_NAMES to the same on all nodes")
	}
}

// sameSets compares sets of files that are to be the same on all nodes.
func (j *findings) sameSets(list []teller, check, what string, s Status, of func(*front.PeerCertificates) []string) {
	by := map[string][]string{}
	size := 0
	for _, n := range list {
		if n.Peers == nil {
			continue
		}
		sums := of(n.Peers)
		slices.Sort(sums)
		sums = slices.Compact(sums)
		size = max(size, len(sums))
		key := strings.Join(sums, " ")
		by[key] = append(by[key], n.name)
	}
	if len(by) < 2 {
		for _, names := range by {
			if len(names) > 1 && size > 0 {
				j.ok(check, "", "%s: the same on all nodes that tell", what)
			}
		}
		return
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		words = append(words, fmt.Sprintf("%s: %d", strings.Join(by[key], ", "), len(strings.Fields(key))))
	}
	j.add(s, check, "", fmt.Sprintf("the nodes have different %s: %s", what, strings.Join(words, "; ")), "finish the step that is under way: copy the same file to all nodes; they read it within seconds")
}
