// Package driver is the protocol between "isotone verify" and the driver of a system, and the drivers that are part
// of this program.
//
// A driver is a process that reads one JSON object a line from its standard input and writes one a line to its
// standard output, at once; standard error is for people. A line has at most LineMax bytes. A request has an id, which
// its answer repeats: {"id":7,"ok":{…}} or {"id":7,"error":"unavailable","message":"…"}. Unknown fields are ignored. At
// the end of its input a driver ends, and leaves nothing behind.
//
// Requests of different clients are answered in any order, side by side; a client has one request under way at a time.
package driver

import "encoding/json"

const (
	// Protocol is the version of the protocol.
	Protocol = 1
	// LineMax bounds a line, in bytes.
	LineMax = 4 << 20
)

// Intervals is the promise of a clock that answers with an interval of time in place of numbers.
const Intervals = "intervals"

// The errors of a driver.
const (
	// Unavailable: the system refused or did not answer in time. During faults that is no offence.
	Unavailable = "unavailable"
	// Malformed: the system gave an answer that is no number.
	Malformed = "malformed"
	// Invalid: the request itself is wrong, for example an option that the driver does not have.
	Invalid = "invalid"
)

// Request is what the driver is asked to do.
type Request struct {
	ID uint64 `json:"id"`
	// Do is hello, plan, connect, ready, ask, remove or add.
	Do string `json:"do"`
	// Protocol is that of hello.
	Protocol int `json:"protocol,omitempty"`
	// Plan is that of plan, Addresses that of connect: the addresses that the answer to plan had, or those of a
	// running cluster; Options go with these and with hello.
	Plan      *PlanRequest      `json:"plan,omitempty"`
	Addresses []string          `json:"addresses,omitempty"`
	Options   map[string]string `json:"options,omitempty"`
	// Node is the index of the node that is asked by ready and ask: this one and no other. Remove and add are about it; Start is how it was
	// started then, and TimeoutMS how long that may take.
	Node  int      `json:"node"`
	Start *Command `json:"start,omitempty"`
	// Client, Count, Times and TimeoutMS are those of ask: numbers for a client, up to Times calls one after the other, in
	// each of which Count numbers are wanted and an answer may take TimeoutMS. Ready has TimeoutMS, too.
	Client    int    `json:"client,omitempty"`
	Count     uint64 `json:"count,omitempty"`
	Times     int    `json:"times,omitempty"`
	TimeoutMS int    `json:"timeout_ms,omitempty"`
}

// Response answers a request. One of OK and Error is set.
type Response struct {
	ID      uint64          `json:"id"`
	OK      json.RawMessage `json:"ok,omitempty"`
	Error   string          `json:"error,omitempty"`
	Message string          `json:"message,omitempty"`

	calls []Call // in place of OK
}

// Hello is the answer to hello.
type Hello struct {
	Protocol int    `json:"protocol"`
	System   string `json:"system"`
	Version  string `json:"version"`
	// Promises is the strongest order that the system promises: unique, client, real-time, or Intervals.
	Promises string `json:"promises"`
	// CountMax is how many numbers one call may ask for; 1 if not set.
	CountMax uint64 `json:"count_max,omitempty"`
	// TimesMax is how many calls one request may ask for; 1 if not set. Above 1, all calls have Began and Ended.
	TimesMax int `json:"times_max,omitempty"`
	// Nodes is how many nodes a cluster has unless the user says otherwise; NodesMax how many it may have. 1 if not set.
	Nodes    int `json:"nodes,omitempty"`
	NodesMax int `json:"nodes_max,omitempty"`
	// Ports is how many TCP ports a node needs.
	Ports int `json:"ports,omitempty"`
	// Members: the members can be changed while the system runs, so the driver answers remove and add.
	Members bool `json:"members,omitempty"`
	// Options describes the options of the driver by name, for people.
	Options map[string]string `json:"options,omitempty"`
}

// Added is the answer to add.
type Added struct {
	Start Command `json:"start"` // how the node is started from now on
}

// PlanRequest says where nodes may run.
type PlanRequest struct {
	// Dir is an empty directory for the data of all nodes.
	Dir   string     `json:"dir"`
	Nodes []NodeSpot `json:"nodes"`
}

// NodeSpot is where one node may listen: only there.
type NodeSpot struct {
	Host  string `json:"host"`
	Ports []int  `json:"ports"`
}

// Plan is the answer to plan: how the nodes are started. The driver starts none.
type Plan struct {
	// Prepare are commands that are run once, one after the other, before any node is started (for example initdb).
	Prepare []Command     `json:"prepare,omitempty"`
	Nodes   []NodeCommand `json:"nodes"`
}

// Command is a command line with its environment beyond PATH, HOME and TMPDIR.
type Command struct {
	Command []string `json:"command"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
}

// NodeCommand is how one node is started, each time. It stays in the foreground.
type NodeCommand struct {
	Command
	// Address is where ready and ask find the node.
	Address string `json:"address"`
}

// Answer is the answer to ask: the calls that were answered, in their order, at least one. If one fails, no further one is
// made, and Failed says why.
type Answer struct {
	Calls  []Call  `json:"calls"`
	Failed *Failed `json:"failed,omitempty"`
}

// Call is one call that got Count numbers, from First on, each one above the one before. With the promise Intervals it got one interval,
// from First to Last, and Count is 1.
type Call struct {
	// First and Last are decimal numbers below 2¹²⁸.
	First string `json:"first"`
	Last  string `json:"last,omitempty"`
	Count uint64 `json:"count"`
	// Began and Ended are readings of CLOCK_MONOTONIC, in nanoseconds, before the request was written and after the
	// answer was read. A driver whose language cannot read it leaves out both; then Times is always 1, and the
	// times of the request to the driver count.
	Began int64 `json:"began,omitempty"`
	Ended int64 `json:"ended,omitempty"`
}

// Failed is a call without numbers.
type Failed struct {
	Error   string `json:"error"` // Unavailable or Malformed
	Message string `json:"message"`
}
