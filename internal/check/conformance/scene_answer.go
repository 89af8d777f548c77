package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/isotone/isotone/conformance/vectors"
)

// This file makes scenarios of the vectors: what they say of bytes, clients have to do.

// load reads a file of vectors.
func load(name string, into any) {
	text, err := vectors.Files.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(fmt.Sprintf("vectors %s: %v", name, err)) // they are part of the program
	}
}

// wire is a text in which each character stands for a byte.
type wire string

func (w wire) bytes() (b []byte) {
	for _, r := range string(w) {
		b = append(b, byte(r))
	}
	return b
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// slug returns a text as a part of a name.
func slug(text string) string {
	return strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// badAnswer is a case of resp.json.
type badAnswer struct {
	About, Method         string
	Count                 uint64 `json:",string"`
	Wire                  wire
	Malformed, Incomplete bool
}

// malformed returns a scenario for each answer that is none, and for each that is cut off.
func malformed() (list []Scenario) {
	var v struct {
		Answers []badAnswer
		Slots   []struct {
			About     string
			Wire      wire
			Malformed bool
		}
	}
	load("resp", &v)
	for _, a := range v.Answers {
		if a.Malformed || a.Incomplete {
			list = append(list, a.scenario())
		}
	}
	for _, a := range v.Slots {
		if a.Malformed {
			list = append(list, badSlots(a.About, a.Wire))
		}
	}
	return list
}

// scenario: a node answers one request so. The connection must end, and the call get numbers of another answer.
func (a badAnswer) scenario() Scenario {
	name, rule := "malformed-", "C29"
	if a.Incomplete {
		name, rule = "cut-off-", "C30"
	}
	name += slug(a.About)
	return Scenario{Name: name, Rules: rules(rule, "C30"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		n := s.nodes[0]
		n.on(commandOf(a.Method), 1, func(*request) answer { return answer{bytes: a.Wire.bytes(), end: a.Incomplete} })
		c.get(rule, a.Method, a.Count)
		n.awaitClosed("the end of the connection", n.got(commandOf(a.Method))[0].conn)
		c.get(rule, a.Method, a.Count)
	}}
}

// badSlots: a node answers questions for the leader so, and another one is right.
func badSlots(about string, w wire) Scenario {
	return Scenario{Name: "malformed-members-" + slug(about), Rules: rules("C40", "C29"), play: func(s *stage) {
		s.start(2)
		s.nodes[0].say("CLUSTER SLOTS", -1, w.bytes())
		s.lead(1)
		s.open().timestamp("C40")
	}}
}

// refusal is a case of errors.json.
type refusal struct {
	Line, Code, Class string
	RetryAfter        int64 `json:"retry_after_ms"`
}

// refusals returns scenarios for each error line.
func refusals() (list []Scenario) {
	var v struct {
		Lines     []refusal
		Malformed []string
	}
	load("errors", &v)
	seen := map[string]int{}
	for _, line := range v.Lines {
		name := slug(line.Line)
		name = name[:min(len(name), 40)]
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprint("-", seen[name])
		}
		switch line.Class {
		case "retry", "quota":
			list = append(list, line.retried(name, "timestamp"), line.retried(name, "ids"))
		case "final":
			list = append(list, line.final(name, "timestamp"), line.final(name, "timestamps64"), line.final(name, "ids"))
		}
	}
	for i, line := range v.Malformed {
		list = append(list, badRedirect(fmt.Sprintf("redirect-without-an-address-%d", i+1), line))
	}
	return append(list, quotas...)
}

// rule returns the rule for the class.
func (r refusal) rule() string {
	switch r.Code {
	case "quota_exceeded":
		return "C35"
	case "forbidden":
		return "C37"
	case "regressed", "wrong_cluster":
		return "C38"
	case "internal", "invalid_argument":
		return "C39"
	}
	return "C34"
}

// retried: the node refuses some times so. The call must succeed.
func (r refusal) retried(name, method string) Scenario {
	return Scenario{Name: "retried-" + name + "-" + method, Rules: rules(r.rule()), play: func(s *stage) {
		s.start(1)
		c := s.open()
		line := r.Line
		if r.RetryAfter > 50 {
			line = "TRYAGAIN quota_exceeded: retry after 50 ms"
		}
		s.nodes[0].say(commandOf(method), 3, faultLine(line))
		c.get(r.rule(), method, counted(method, 4))
	}}
}

// final: the node refuses so. The call must fail at once, and others go on.
func (r refusal) final(name, method string) Scenario {
	return Scenario{Name: "final-" + name + "-" + method, Rules: rules(r.rule()), play: func(s *stage) {
		s.start(1)
		c := s.open()
		n, command := s.nodes[0], commandOf(method)
		refuse := n.say(command, -1, faultLine(r.Line))
		c.begin(method, counted(method, 4)).fails(r.rule(), r.Code)
		// A client that makes calls for one on a connection of their own may repeat one there that was refused.
		list := n.got(command)
		s.check(len(list) <= 2, r.rule(), "the request was sent %d times, though the refusal is final", len(list))
		n.off(refuse)
		c.get(r.rule(), method, counted(method, 4))
	}}
}

// badRedirect: a redirect that names no address ends the connection; the call goes on.
func badRedirect(name, line string) Scenario {
	return Scenario{Name: name, Rules: rules("C29", "C33"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		n := s.nodes[0]
		n.say("TS", 1, faultLine(line))
		c.timestamp("C29")
		n.awaitClosed("the end of the connection", n.got("TS")[0].conn)
	}}
}

var quotas = []Scenario{
	quotaPause("timestamp", 120), quotaPause("timestamps", 400), quotaPause("timestamp64", 120), quotaPause("id", 150),
	{Name: "quota-until-the-deadline", Rules: rules("C35", "C48"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		for _, n := range s.nodes {
			n.say("TS", -1, faultLine("TRYAGAIN quota_exceeded: 10 a second; retry after 20 ms"))
		}
		s.eventually("C35", "quota_exceeded", func() *call { return c.begin("timestamp", 0, within(short)) })
		s.eventually("C35", "quota_exceeded", func() *call { return c.begin("timestamps", 3, within(short)) })
	}},
	{Name: "quota-is-asked-of-no-other-node", Rules: rules("C35"), play: func(s *stage) {
		s.start(3)
		c := s.open()
		s.nodes[0].say("TS", 4, faultLine("TRYAGAIN quota_exceeded: 10 a second; retry after 30 ms"))
		c.timestamp("C35")
		for _, n := range s.nodes[1:] {
			s.check(len(n.got("TS")) == 0, "C35", "%s was asked, too", n.name())
		}
	}},
	{Name: "quota-without-a-pause", Rules: rules("C35", "C47"), Needs: needs(featConnections), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		n := s.nodes[0]
		quota := n.say("TS", -1, faultLine("TRYAGAIN quota_exceeded: later"))
		call := c.begin("timestamp", 0)
		s.paced("C35", n.awaitGot("TS", 12), 100*time.Millisecond)
		n.off(quota)
		call.want("C35")
	}},
}

// quotaPause: a connection that was told when to come again is not used before.
func quotaPause(method string, ms int) Scenario {
	return Scenario{Name: fmt.Sprintf("quota-pause-%s", method), Rules: rules("C35"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		n := s.nodes[0]
		const times = 3
		n.say(commandOf(method), times, faultLine(fmt.Sprintf("TRYAGAIN quota_exceeded: retry after %d ms", ms)))
		c.get("C35", method, counted(method, 2))
		list := n.got(commandOf(method))
		for i, r := range list {
			for _, next := range list[i+1:] {
				if i < times && next.conn == r.conn && next.at.Sub(r.sent) < time.Duration(ms)*time.Millisecond {
					s.blame("C35", "%s got %s %v after it had asked for a pause of %d ms", r.conn.name, next, next.at.Sub(r.sent), ms)
				}
			}
		}
	}}
}
