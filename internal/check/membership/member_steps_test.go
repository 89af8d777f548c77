//go:build linux

package membership_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// These tests kill -9 at every step of every command that changes members or leadership. A node
// stops itself at the step (see chaos.Cluster.StopAt); then the victim is killed and started again,
// and the stopped node goes on, unless it was the victim.

const (
	// stepTimeout bounds the wait for a step: it takes some hundred milliseconds.
	stepTimeout = time.Minute
	// stepAttempts is how often a command is run until it reaches a step.
	stepAttempts = 3
)

// victim is what is killed.
type victim string

const (
	theLeader   victim = "leader"   // the one that led before the command
	theNode     victim = "node"     // the one that the command is about
	theOld      victim = "old"      // the process that is being replaced
	theTerminal victim = "terminal" // the command itself
	theStopped  victim = "stopped"  // whichever node is at the step
)

// killStep is one step of a command.
type killStep struct {
	who string // where: "leader", "node", or "any"
	at  string // see stops.Steps
	// over: the command may have ended before.
	over bool
}

func (k killStep) String() string { return k.who + ": " + k.at }

// target is what one run of a command is about.
type target struct {
	node, old *chaos.Node
	start     bool // start the node before the command
	args      []string
	leader    *chaos.Node // before the command
	before    uint64      // generation of the node
	killed    bool        // the node was killed
}

// stepCommand is a command whose steps are killed.
type stepCommand struct {
	name    string
	prepare func(*stepRun) target
	// mayFail: if this one is killed, the command may report a failure; it is repeated then.
	mayFail []victim
	// finish checks what settled does not, and leaves five nodes that run.
	finish  func(*stepRun, *target)
	victims []victim
	steps   []killStep
	// quick is what a normal run of the tests kills: at a step, one of victims.
	quick       killStep
	quickVictim victim
}

// at returns steps in one process.
func at(who string, steps ...string) (list []killStep) {
	for _, s := range steps {
		list = append(list, killStep{who: who, at: s})
	}
	return list
}

// entry returns the steps of a log entry; the node may not learn that its removal is committed.
func entry(name string) (list []killStep) {
	list = at("leader", name+" proposed", name+" sent", name+" written", name+" applied")
	list = append(list, at("node", name+" received", name+" written")...)
	if name != "remove" {
		list = append(list, at("node", name+" applied")...)
	}
	return list
}

// over marks steps that come when the command may have ended.
func over(lists ...[]killStep) (all []killStep) {
	for _, s := range steps(lists...) {
		s.over = true
		all = append(all, s)
	}
	return all
}

func steps(lists ...[]killStep) (all []killStep) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var (
	received  = at("leader", "change received")
	confirmed = at("leader", "change confirmed")
	// learner are the steps in which a member becomes known.
	learner = steps(received, at("leader", "add proposed", "add sent", "add written", "add applied"), confirmed)
	// joining are those of a new node until it has the state of the cluster.
	joining = steps(
		at("node", "join begun"), at("any", "join answered"), at("node", "join told", "directory made", "hello received"),
		at("leader", "hello received", "register proposed", "register sent", "register applied", "snapshot proposed", "snapshot sent"),
		at("node", "snapshot received", "snapshot written", "snapshot restored"),
	)
	transferring = steps(
		at("leader", "timeout-now proposed", "timeout-now sent"), at("any", "timeout-now received", "elected", "deposed"),
	)
	draining = at("node", "drain received", "drain announced", "drain transferred", "requests finished", "workers released", "node closed")
)

var stepCommands = []stepCommand{
	{
		name: "add --learner", prepare: func(s *stepRun) target { return s.joiner("--learner") }, finish: (*stepRun).removeLearner,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(learner, over(joining)),
		quick:   killStep{who: "leader", at: "register proposed", over: true}, quickVictim: theLeader,
	},
	{
		name: "add", prepare: func(s *stepRun) target { return s.joiner() }, finish: (*stepRun).removeVoter,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(learner, over(entry("promote"))),
		quick:   killStep{who: "leader", at: "change confirmed"}, quickVictim: theTerminal,
	},
	{
		name: "add --voter", prepare: func(s *stepRun) target { return s.joiner("--voter") }, finish: (*stepRun).removeVoter,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(learner, joining, entry("promote")),
		quick:   killStep{who: "node", at: "snapshot written"}, quickVictim: theNode,
	},
	{
		name: "promote", prepare: (*stepRun).learner, finish: (*stepRun).removeVoter,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(received, entry("promote"), confirmed),
		quick:   killStep{who: "leader", at: "promote applied"}, quickVictim: theLeader,
	},
	{
		name: "remove a follower", prepare: (*stepRun).sixth, finish: (*stepRun).gone,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(received, entry("remove"), confirmed),
		quick:   killStep{who: "leader", at: "remove applied"}, quickVictim: theTerminal,
	},
	{
		name: "remove the leader", prepare: (*stepRun).sixthLeads, finish: (*stepRun).gone,
		victims: []victim{theNode, theStopped, theTerminal},
		steps:   steps(received, transferring, over(at("leader", "remove proposed", "remove sent", "remove written", "remove applied")), at("node", "remove received"), confirmed),
		quick:   killStep{who: "any", at: "timeout-now received"}, quickVictim: theStopped,
	},
	{
		name: "replace a lost disk", prepare: (*stepRun).lostDisk, finish: (*stepRun).nextGeneration,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(learner, joining, entry("joint"), entry("leave")),
		quick:   killStep{who: "leader", at: "joint applied"}, quickVictim: theLeader,
	},
	{
		name: "replace a follower that runs", prepare: (*stepRun).followerRuns, finish: (*stepRun).oldEnded,
		victims: []victim{theLeader, theNode, theOld, theTerminal},
		steps:   steps(received, at("leader", "add applied"), confirmed, at("node", "snapshot written"), entry("joint"), entry("leave")),
		quick:   killStep{who: "node", at: "joint received"}, quickVictim: theOld,
	},
	{
		name: "replace the leader", prepare: (*stepRun).leaderRuns, finish: (*stepRun).oldEnded,
		victims: []victim{theNode, theOld, theStopped, theTerminal},
		steps:   steps(learner, at("node", "snapshot written"), transferring, entry("joint"), entry("leave")),
		quick:   killStep{who: "leader", at: "leave applied"}, quickVictim: theStopped,
	},
	{
		name: "give a replacement up", prepare: (*stepRun).replaced, finish: (*stepRun).sameGeneration,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(received, at("leader", "remove proposed", "remove sent", "remove written", "remove applied"), confirmed),
		quick:   killStep{who: "leader", at: "remove applied"}, quickVictim: theLeader,
	},
	{
		name: "update", prepare: (*stepRun).mover, finish: (*stepRun).moved,
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(received, entry("update"), confirmed),
		quick:   killStep{who: "leader", at: "update sent"}, quickVictim: theLeader,
	},
	{
		name: "leader transfer", prepare: (*stepRun).successor, finish: (*stepRun).leads,
		// It cannot lead while it is down.
		mayFail: []victim{theNode},
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   steps(at("leader", "transfer received"), transferring, at("any", "transfer confirmed"), over(at("node", "opened"))),
		quick:   killStep{who: "any", at: "elected"}, quickVictim: theNode,
	},
	{
		name: "leader resign", prepare: (*stepRun).resign, finish: func(s *stepRun, _ *target) { s.c.WaitLeader() },
		victims: []victim{theLeader, theStopped, theTerminal},
		steps:   steps(at("leader", "transfer received"), transferring, at("any", "transfer confirmed"), over(at("any", "opened"))),
		quick:   killStep{who: "leader", at: "timeout-now sent"}, quickVictim: theLeader,
	},
	{
		name: "drain a follower", prepare: func(s *stepRun) target { return s.drained(s.follower()) }, finish: (*stepRun).drainedEnds,
		mayFail: []victim{theNode},
		victims: []victim{theLeader, theNode, theTerminal},
		steps:   over(draining),
		quick:   killStep{who: "node", at: "workers released", over: true}, quickVictim: theLeader,
	},
	{
		name: "drain the leader", prepare: func(s *stepRun) target { return s.drained(s.c.WaitLeader()) }, finish: (*stepRun).drainedEnds,
		mayFail: []victim{theNode},
		victims: []victim{theNode, theStopped, theTerminal},
		steps:   over(transferring, draining),
		quick:   killStep{who: "any", at: "timeout-now received", over: true}, quickVictim: theStopped,
	},
}

// chosenCommands returns those with any of the words in MEMBER_STEPS_ONLY, separated by commas;
// all if it is not set.
func chosenCommands(t *testing.T) (list []stepCommand) {
	t.Helper()
	for _, cmd := range stepCommands {
		for word := range strings.SplitSeq(os.Getenv("MEMBER_STEPS_ONLY"), ",") {
			if strings.Contains(cmd.name, word) {
				list = append(list, cmd)
				break
			}
		}
	}
	if len(list) == 0 {
		t.Fatalf("MEMBER_STEPS_ONLY=%q names no command", os.Getenv("MEMBER_STEPS_ONLY"))
	}
	return list
}

// TestMemberSteps_KilledAtAnyStep kills the leader, the node concerned, and the command itself, at
// every step of every command with MEMBER_STEPS=all, for a quarter of an hour; at one step of each
// without. Whoever was killed, the command succeeds, or does so when it is repeated; no call
// fails, no order breaks, no ID repeats, and no node ever knows of fewer voters than before.
func TestMemberSteps_KilledAtAnyStep(t *testing.T) {
	t.Parallel()
	if os.Getenv("MEMBER_STEPS") != "all" {
		s := newStepRun(t)
		for i, cmd := range chosenCommands(t) {
			if i%trial.Short(1, 3) == 0 {
				s.strike(&cmd, cmd.quick, cmd.quickVictim)
			}
		}
		s.end()
		return
	}
	for _, cmd := range chosenCommands(t) {
		t.Run(cmd.name, func(t *testing.T) {
			s := newStepRun(t)
			for _, k := range cmd.steps {
				for _, v := range cmd.victims {
					if v != theTerminal || !k.over {
						s.strike(&cmd, k, v)
					}
				}
			}
			s.end()
		})
	}
}
