package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// security is what a node of a healthy cluster tells.
func security(id uint64) *front.Security {
	return &front.Security{
		NodeID: id, ClientCA: true, Users: &front.UserList{SHA256: strings.Repeat("a1", 32), Users: 3},
		Peers: &front.PeerCertificates{
			Names: []string{fmt.Sprintf("spiffe://x/isotone/node/%d", id)}, NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(1, 0, 0), SignedBy: "ca1",
			Authorities: []front.Authority{{SHA256: "ca1", Subject: "CN=ca", NotAfter: now.AddDate(9, 0, 0)}},
			Lists:       []front.RevocationList{{Issuer: "CN=ca", SHA256: "crl1", Revoked: 1, ThisUpdate: now.AddDate(0, 0, -2), NextUpdate: now.AddDate(1, 0, 0)}},
		},
	}
}

// told is what a node tells.
func told(c *doctor.Cluster, id uint64) *front.Security { return c.Nodes[id-1].Security }

// distrust has ailments of users and peers.
var distrust = []ailment{
	{"another list of users", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Users.SHA256 = strings.Repeat("b2", 32) }, doctor.Problem, "users",
		"node 1, node 2, ACL_FILE here: SHA-256 a1a1a1a1a1a1a1a1…; node 3: SHA-256 b2b2b2b2b2b2b2b2…"},
	{"another list on this machine", func(l *doctor.Local, _ *doctor.Cluster) { l.Trust.Security.Users.SHA256 = "c3" }, doctor.Problem, "users", "ACL_FILE here: SHA-256 c3…"},
	{"a user who moves time", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).MovedTime = map[string]uint64{"shop": 2} }, doctor.Warning, "floors", "user shop have moved time ahead of the clock, for all clients: 2 times"},
	{"time that a client has moved ahead", func(_ *doctor.Local, c *doctor.Cluster) {
		c.Nodes[2].LastMove = &survey.Move{At: now.Add(-time.Second), User: "shop", Client: "192.0.2.7", To: now.Add(4 * time.Second), AheadSeconds: 5}
	}, doctor.Warning, "floors", "the floor of a request of user shop, from 192.0.2.7, has moved time 5s ahead of the clock at 2027-"},
	{"operators by loopback", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 2).RefusedHere = 1 }, doctor.Warning, "users", "1 request of operators came from its own machine over TCP"},
	{"a node without a list", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Users, told(c, 3).ClientCA = nil, false }, doctor.Problem, "users", "node 3: no list"},
	{"a list that is refused", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Users.Refused = true }, doctor.Problem, "users", "the list before stays in force"},
	{"a list with faults here", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Trust.UsersError, l.Trust.Security.Users, l.Trust.Security.ClientCA = "user a: no role", nil, false
	}, doctor.Problem, "users", "user a: no role"},

	{"peer files with faults here", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Trust.PeersError, l.Trust.Security.Peers = "PEER_TLS_CERT: not the name of node 2", nil
	}, doctor.Problem, "certificate", "not the name of node 2"},
	{"peers in plaintext here", func(l *doctor.Local, _ *doctor.Cluster) {
		l.Trust.PeersError, l.Trust.PeerCert, l.Trust.Security.Peers = "PEERS: need TLS", "", nil
	}, doctor.Problem, "clear", "need TLS"},
	{"a peer certificate that ends", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.NotAfter = now.AddDate(0, 0, 13) }, doctor.Warning, "certificate", "in 13 days; peers refuse it then"},
	{"a peer certificate that ends tomorrow", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.NotAfter = now.AddDate(0, 0, 1) }, doctor.Warning, "certificate", "in 1 day;"},
	{"a peer certificate that has ended", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.NotAfter = now }, doctor.Problem, "certificate", "ended on 2027-01-02: peers refuse it"},
	{"a peer certificate of tomorrow", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.NotBefore = now.Add(1) }, doctor.Problem, "certificate", "begins on"},
	{"a revoked peer certificate", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.Revoked = true }, doctor.Problem, "certificate", "is revoked"},
	{"other names are allowed", func(_ *doctor.Local, c *doctor.Cluster) {
		told(c, 3).Peers.AllowedNames = "1=spiffe://x/isotone/node/2,2=spiffe://x/isotone/node/1,3=spiffe://x/isotone/node/3"
		told(c, 1).Peers.Names = append(told(c, 1).Peers.Names, "spiffe://x/isotone/node/2")
	}, doctor.Problem, "certificate", "spiffe://x/isotone/node/2, which is not the name of node 2 by PEER_ALLOWED_NAMES"},
	{"an old authority that has ended", func(l *doctor.Local, c *doctor.Cluster) {
		a := front.Authority{SHA256: "ca0", Subject: "CN=old", NotAfter: now.Add(-time.Hour)}
		for id := uint64(1); id <= 3; id++ {
			told(c, id).Peers.Authorities = append(told(c, id).Peers.Authorities, a)
		}
		told(c, 1).Peers.SignedBy, told(c, 2).Peers.SignedBy = "ca0", "ca0"
	}, doctor.Warning, "certificate", "the authority CN=old in PEER_TLS_CA ends, or has ended, on 2027-01-02"},
	{"other authorities", func(_ *doctor.Local, c *doctor.Cluster) {
		told(c, 3).Peers.Authorities = append(told(c, 3).Peers.Authorities, front.Authority{SHA256: "ca2", NotAfter: now.AddDate(9, 0, 0)})
	}, doctor.Warning, "authority", "different authorities (PEER_TLS_CA): node 1, node 2: 1; node 3: 2"},
	{"another revocation list", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.Lists[0].SHA256 = "crl0" }, doctor.Problem, "revocation", "different revocation lists"},
	{"no revocation list", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.Lists = nil }, doctor.Problem, "revocation", "node 3: 0; node 1, node 2: 1"},
	{"an old revocation list", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.Lists[0].NextUpdate = now }, doctor.Warning, "revocation", "was to be replaced by 2027-01-02"},
	{"a revocation list of tomorrow", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers.Lists[0].ThisUpdate = now.Add(1) }, doctor.Warning, "revocation", "begins on"},
	{"a node in plaintext", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).Peers = nil }, doctor.Problem, "clear", "node 3: peers in plaintext; node 1, node 2: with certificates"},
	{"peers in plaintext are accepted", func(_ *doctor.Local, c *doctor.Cluster) { told(c, 3).PeersInClear = true }, doctor.Warning, "clear", "node 3: peers in plaintext are accepted"},
}

// An authority that another node lacks is a problem of both nodes, and explains the warning about the sets.
func TestJudge_AnAuthorityThatAnotherNodeLacks(t *testing.T) {
	c := cluster()
	told(c, 3).Peers.Authorities[0].SHA256, told(c, 3).Peers.SignedBy = "ca2", "ca2"
	lacks := map[string]bool{}
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	for _, f := range list {
		if f.Check == "authority" && f.Status == doctor.Problem {
			lacks[f.Subject] = true
		}
	}
	if len(lacks) != 4 || !lacks["node 1 by node 3"] || !lacks["node 3 by node 1"] || len(list) != 5 {
		t.Errorf("%+v", list)
	}
}

// Certificates give all roles where there is no list: a warning for each node, and for the settings here.
func TestJudge_CertificatesThatGiveAllRoles(t *testing.T) {
	l, c := local(), cluster()
	l.Trust.Security.Users = nil
	for id := uint64(1); id <= 3; id++ {
		told(c, id).Users = nil
	}
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Local: l, Cluster: c}))
	if len(list) != 4 || list[0].Subject != "TLS_CLIENT_CA" || list[3].Subject != "node 3" {
		t.Fatalf("%+v", list)
	}
	for _, f := range list {
		if f.Status != doctor.Warning || f.Check != "users" || !strings.Contains(f.Found, "all roles") || !strings.Contains(f.Do, "ACL_FILE") {
			t.Errorf("%+v", f)
		}
	}
}

// A whole cluster in plaintext is warned of once; nodes that do not tell are none of them.
func TestJudge_AClusterInClear(t *testing.T) {
	c := cluster()
	for id := uint64(1); id <= 3; id++ {
		told(c, id).Peers, told(c, id).PeersInClear = nil, id < 3
	}
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	if len(list) != 1 || list[0].Status != doctor.Warning || list[0].Check != "clear" || !strings.Contains(list[0].Found, "PEER_INSECURE") {
		t.Errorf("%+v", list)
	}
	for i := range c.Nodes {
		c.Nodes[i].Security = nil
	}
	r := doctor.Judge(&doctor.Measurements{At: now, Cluster: c})
	silent := false
	for _, f := range r.Findings {
		silent = silent || strings.Contains(f.Found, "node 1, 2, 3 does not tell")
	}
	if len(notOK(r)) != 0 || !silent {
		t.Errorf("%+v", r.Findings)
	}
}
