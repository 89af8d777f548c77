//go:build linux

package chaos

import (
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/strace"
)

// kind is a kind of fault.
type kind struct {
	name   string
	weight int
	// fits reports whether a cluster has what the fault breaks.
	fits func(*Cluster) bool
	// denied returns why the fault is impossible on this machine, or "".
	denied func() string
	// plan draws a fault of this kind.
	plan func(*Storm) *fault
}

// kinds has all kinds of faults, in the order of the summary.
var kinds = []kind{
	{"kill -9", 4, always, allowed, (*Storm).planKill},
	{"kill -9 of all", 1, always, allowed, (*Storm).planKillAll},
	{"SIGTERM", 3, always, allowed, (*Storm).planTerm},
	{"other version", 8, hasVersions, allowed, (*Storm).planVersion},
	{"SIGSTOP", 6, always, allowed, (*Storm).planPause},
	{"fsync fails", 2, always, strace.Denied, (*Storm).planFailSync},
	{"fsync is slow", 3, always, strace.Denied, (*Storm).planSlowSync},
	{"disk full", 2, always, VolumesDenied, (*Storm).planFullDisk},
	{"clock jumps", 4, hasClocks, allowed, (*Storm).planJump},
	{"clock drifts", 2, hasClocks, allowed, (*Storm).planDrift},
	{"clock stands still", 2, hasClocks, allowed, (*Storm).planFreeze},
	{"timeline moves", 6, hasTimelines, allowed, (*Storm).planMove},
	{"link delays", 3, hasProxies, allowed, (*Storm).planDelay},
	{"link holds", 2, hasProxies, allowed, (*Storm).planHold},
	{"link drops", 2, hasProxies, allowed, (*Storm).planDrop},
	{"link is cut", 2, hasProxies, allowed, (*Storm).planCut},
	{"link is slow", 2, hasProxies, allowed, (*Storm).planThrottle},
	{"one-way partition", 5, hasNetwork, namespace.NetworkDenied, (*Storm).planOneWay},
	{"node cut off", 3, hasNetwork, namespace.NetworkDenied, (*Storm).planCutOff},
	{"packets lost", 3, hasNetwork, namespace.NetworkDenied, (*Storm).planLoss},
}

func allowed() string { return "" }

func always(*Cluster) bool        { return true }
func hasVersions(c *Cluster) bool { return c.options.Versions }
func hasClocks(c *Cluster) bool   { return c.Nodes[0].clock != "" }
func hasProxies(c *Cluster) bool  { return len(c.Proxies) > 0 }
func hasNetwork(c *Cluster) bool  { return c.Nodes[0].network != nil }
