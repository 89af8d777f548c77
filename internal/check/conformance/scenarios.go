package conformance

import "slices"

// Scenarios returns all scenarios, by subject.
func Scenarios() []Scenario {
	return slices.Concat(connecting, clusters, orders, requests, malformed(), refusals(), leaders, deadlines, ids, generators, credentials, secure, clocks())
}

// rules and needs are for the tables of scenarios.
func rules(list ...string) []string { return list }
func needs(list ...string) []string { return list }

// forms are the methods for one number. IDs come from any member.
var stampForms = []string{"timestamp", "timestamps", "timestamp64", "timestamps64"}

// counted returns the count for a method that has one, or 0.
func counted(method string, count uint64) uint64 {
	if method[len(method)-1] == 's' || method == "timestamps64" {
		return count
	}
	return 0
}
