package namespace

import "fmt"

// subnet begins the addresses of hosts, which nobody else sees.
const subnet = "10.77.0."

// IP returns the address of a host.
func IP(id int) string { return fmt.Sprint(subnet, id) }

// Packets is what happens to the packets that a host gets from another: the end of an iptables rule.
type Packets []string

// Dropped has all of them lost.
func Dropped() Packets { return Packets{"-j", "DROP"} }

// Lost has a part of them lost, 0 to 1.
func Lost(part float64) Packets {
	return Packets{"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.3f", part), "-j", "DROP"}
}

// Rule is about the packets from one host to another. The other direction is left alone.
type Rule struct {
	From, To int
	Packets
}

func (r Rule) String() string { return fmt.Sprintf("%d → %d", r.From, r.To) }

// Into returns the rules for what one of count hosts gets from all others, OutOf those for what it sends to them.
func Into(host, count int, p Packets) (rules []Rule) {
	for other := 1; other <= count; other++ {
		if other != host {
			rules = append(rules, Rule{other, host, p})
		}
	}
	return rules
}

// OutOf is described with [Into].
func OutOf(host, count int, p Packets) []Rule {
	rules := Into(host, count, p)
	for i := range rules {
		rules[i].From, rules[i].To = host, rules[i].From
	}
	return rules
}
