package conformance

import (
	"crypto/tls"
	"net"
	"time"
)

const (
	user   = "billing"
	secret = "correct horse 7 battery"
)

// known gives the client the credentials.
func known(o *Options) { o.User, o.Secret = user, secret }

// guard has the nodes want credentials.
func (s *stage) guard(secret string) {
	s.change("nodes want credentials", func() { s.users = map[string]string{user: secret} })
}

var credentials = []Scenario{
	{Name: "credentials-come-first", Rules: rules("C6", "C2"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(3)
		s.guard(secret)
		c := s.open(known)
		c.timestamp("C6")
		c.get("C6", "id", 0)
		s.lead(1)
		c.timestamp("C6")
		s.nodes[1].restart()
		c.timestamp("C6")
	}},
	{Name: "wrong-credentials", Rules: rules("C9", "C7"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(2)
		s.guard("another")
		_, made := s.make(callDeadline, known)
		made.fails("C9", "unauthorized")
	}},
	{Name: "no-credentials-where-some-are-wanted", Rules: rules("C9", "C36"), play: func(s *stage) {
		s.start(2)
		s.guard("another")
		_, made := s.make(callDeadline)
		made.fails("C9", "unauthorized")
	}},
	{Name: "credentials-that-are-right-later", Rules: rules("C9"), Needs: needs(featCredentials, featLazy), play: func(s *stage) {
		s.start(2)
		s.guard("another")
		c, made := s.make(callDeadline, known, lazy)
		made.want("C52")
		c.begin("timestamp", 0).fails("C9", "unauthorized")
		c.begin("id", 0).fails("C9", "unauthorized")
		s.guard(secret)
		s.untilServed(c, "timestamp")
		s.untilServed(c, "id")
	}},
	{Name: "credentials-that-change", Rules: rules("C6"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(1)
		s.guard(secret)
		c := s.open(known)
		c.timestamp("C6")
		s.nodes[0].stop() // no connection carries the secret of before after its end
		s.guard("another secret")
		c.credentials(user, "another secret")
		s.nodes[0].start()
		c.timestamp("C6")
		s.check(s.nodes[0].sent("another secret"), "C6", "the new secret was not sent")
	}},
	{Name: "credentials-that-a-node-forgets", Rules: rules("C10"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(1)
		s.guard(secret)
		c := s.open(known)
		for _, method := range []string{"timestamp", "timestamps", "id", "timestamp64"} {
			c.get("C10", method, counted(method, 2))
			s.nodes[0].say(commandOf(method), 1, faultLine("NOAUTH authenticate first"))
			c.get("C10", method, counted(method, 2))
		}
	}},
	{Name: "credentials-that-change-while-connected", Rules: rules("C10", "C6"), Needs: needs(featCredentials), play: func(s *stage) {
		// The node forgets the client on all connections, and knows the new secret only.
		s.start(1)
		s.guard(secret)
		c := s.open(known)
		c.timestamp("C10")
		c.credentials(user, "another secret")
		s.change("the secret is another one", func() {
			s.users = map[string]string{user: "another secret"}
			for conn := range s.nodes[0].conns {
				conn.user, conn.former = "", secret // a client may be about to send it
			}
		})
		c.timestamp("C10")
	}},
	{Name: "an-answer-to-auth-from-something-else", Rules: rules("C7"), Needs: needs(featCredentials), play: func(s *stage) {
		// It sends back what was sent to it.
		s.start(1)
		s.nodes[0].on("", -1, func(r *request) answer { return answer{bytes: bulk(r.String())} })
		s.neverMade("C7", known) // the judge looks for the secret in all messages
	}},
	{Name: "no-secret-leaves-the-machine-without-tls", Rules: rules("C8"), Needs: needs(featCredentials), play: func(s *stage) {
		// The node has an address of this machine that leads to other machines as well.
		n := s.add()
		n.addr = abroad(n.addr)
		n.start()
		s.guard(secret)
		_, made := s.make(callDeadline, known)
		made.fails("C8", "unauthorized")
		s.check(!n.sent(secret), "C8", "the secret was sent to %s", n.addr)
	}},
	{Name: "an-error-to-auth-with-the-secret-in-it", Rules: rules("C7"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(1)
		s.nodes[0].on("AUTH", -1, func(r *request) answer { return answer{bytes: faultLine("WRONGPASS no such user: " + user)} })
		_, made := s.make(callDeadline, known)
		made.fails("C9", "unauthorized")
	}},
	{Name: "one-node-refuses-the-credentials", Rules: rules("C9"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(3)
		s.guard(secret)
		s.lead(2)
		s.nodes[0].say("AUTH", -1, faultLine("WRONGPASS the name or the secret is wrong"))
		s.nodes[0].say("HELLO", -1, faultLine("WRONGPASS the name or the secret is wrong"))
		c := s.open(known)
		for range 5 {
			c.timestamp("C9")
			c.get("C9", "id", 0)
		}
	}},
	{Name: "refused-clients-are-paced", Rules: rules("C9", "C47"), Needs: needs(featCredentials, featLazy), play: func(s *stage) {
		s.start(1)
		s.guard("another")
		_, made := s.make(callDeadline, known, lazy)
		made.want("C52")
		// With the shortest pauses there are 13 tries in 2 s. A client may have a few kinds of connections.
		s.nodes[0].awaitGot("", 1)
		s.quiet(2 * time.Second)
		const most = 50
		tries := len(s.nodes[0].got("AUTH")) + len(s.nodes[0].got("HELLO"))
		s.check(tries <= most, "C9", "a client that is refused has tried %d times in 2 s, want %d at most", tries, most)
	}},
	{Name: "a-right-that-is-missing", Rules: rules("C37"), Needs: needs(featCredentials), play: func(s *stage) {
		s.start(1)
		s.guard(secret)
		c := s.open(known)
		c.get("C37", "id", 0)
		refuse := s.nodes[0].say("TS", -1, faultLine("NOPERM the role timestamps is missing"))
		for range 3 {
			c.begin("timestamp", 0).fails("C37", "forbidden")
			c.get("C37", "id", 0)
		}
		conns := len(s.nodes[0].got("AUTH")) + len(s.nodes[0].got("HELLO"))
		for range 5 {
			c.begin("timestamps", 2).fails("C37", "forbidden")
		}
		s.check(len(s.nodes[0].got("AUTH"))+len(s.nodes[0].got("HELLO")) <= conns+1, "C37", "each refusal has cost a connection")
		s.nodes[0].off(refuse)
		c.timestamp("C37")
	}},
}

// abroad returns an address of this machine that is not a loopback one, with the same port. Without one, the scenario is skipped.
func abroad(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if got, ok := a.(*net.IPNet); ok && got.IP.IsGlobalUnicast() && got.IP.To4() != nil {
			return net.JoinHostPort(got.IP.String(), port)
		}
	}
	panic(skipped{"this machine has no address but loopback ones"})
}

// untilServed repeats a call that is refused because of the credentials until it succeeds.
func (s *stage) untilServed(c *client, method string) {
	for began := time.Now(); ; s.breathe() {
		call := c.begin(method, 0)
		r := call.wait()
		if r.OK != nil {
			return
		}
		call.fails("C9", "unauthorized")
		if time.Since(began) > s.patience {
			panic(broken{"the client goes on to fail, though its credentials are right now"})
		}
	}
}

// sent reports whether the node got that secret.
func (n *node) sent(secret string) bool {
	for _, r := range n.got("") {
		if contains(r.String(), secret) {
			return true
		}
	}
	return false
}

var secure = []Scenario{
	{Name: "tls", Rules: rules("C11"), Needs: needs(featTLS), play: func(s *stage) {
		s.startTLS(2, &tls.Config{Certificates: []tls.Certificate{nodeCert()}})
		c := s.open(trusts(""))
		c.timestamp("C11")
		s.lead(1)
		c.get("C11", "timestamps", 5)
		c.get("C11", "id", 0)
	}},
	{Name: "tls-with-credentials", Rules: rules("C11", "C6"), Needs: needs(featTLS, featCredentials), play: func(s *stage) {
		s.startTLS(1, &tls.Config{Certificates: []tls.Certificate{nodeCert()}})
		s.guard(secret)
		s.open(trusts(""), known).timestamp("C11")
	}},
	{Name: "tls-with-a-server-name", Rules: rules("C11"), Needs: needs(featTLS), play: func(s *stage) {
		s.startTLS(1, &tls.Config{Certificates: []tls.Certificate{namedCert()}})
		s.open(trusts("isotone.example")).timestamp("C11")
	}},
	{Name: "tls-of-another-name", Rules: rules("C11"), Needs: needs(featTLS), play: func(s *stage) {
		s.startTLS(1, &tls.Config{Certificates: []tls.Certificate{namedCert()}})
		s.neverTalks(trusts(""))
	}},
	{Name: "tls-of-another-authority", Rules: rules("C11"), Needs: needs(featTLS), play: func(s *stage) {
		s.startTLS(1, &tls.Config{Certificates: []tls.Certificate{strangeCert()}})
		s.neverTalks(trusts(""))
	}},
	{Name: "tls-configured-and-a-node-without", Rules: rules("C11"), Needs: needs(featTLS), play: func(s *stage) {
		// The node reads TLS as if it were a command, which is a fault only if it understands anything.
		s.startTLS(1, nil)
		s.neverTalks(trusts(""))
	}},
	{Name: "a-client-certificate", Rules: rules("C11"), Needs: needs(featTLS, featCertificate), play: func(s *stage) {
		s.startTLS(1, demanding())
		s.open(trusts(""), presents).timestamp("C11")
	}},
	{Name: "a-client-certificate-that-is-missing", Rules: rules("C9"), Needs: needs(featTLS), play: func(s *stage) {
		s.startTLS(1, demanding())
		_, made := s.make(callDeadline, trusts(""))
		made.fails("C9", "unauthorized")
	}},
	{Name: "a-client-certificate-that-is-missing-in-tls-1-2", Rules: rules("C9"), Needs: needs(featTLS), play: func(s *stage) {
		cfg := demanding()
		cfg.MaxVersion = tls.VersionTLS12
		s.startTLS(1, cfg)
		_, made := s.make(callDeadline, trusts(""))
		made.fails("C9", "unauthorized")
	}},
}
