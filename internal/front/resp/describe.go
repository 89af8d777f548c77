package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/front"
)

// This file has COMMAND and INFO.

// since is the version of isotone that introduced the commands.
const since = "1.0.0"

func (c *conn) runCommand(args [][]byte, r *reply) error {
	commands := c.front.commands
	if len(args) == 1 {
		r.array(len(commands.list))
		for _, cmd := range commands.list {
			r.commandInfo(cmd)
		}
		return nil
	}
	switch sub, n := subcommand(args), len(args); {
	case sub == "COUNT" && n == 2:
		r.integer(int64(len(commands.list)))
	case sub == "LIST" && n == 2:
		r.array(len(commands.list))
		for _, cmd := range commands.list {
			r.bulk(strings.ToLower(cmd.name))
		}
	case sub == "INFO":
		found := commands.named(args[2:])
		r.array(len(found))
		for _, cmd := range found {
			if cmd == nil {
				r.nullArray()
			} else {
				r.commandInfo(cmd)
			}
		}
	case sub == "DOCS":
		found := slices.DeleteFunc(commands.named(args[2:]), func(cmd *command) bool { return cmd == nil })
		r.dict(len(found))
		for _, cmd := range found {
			r.commandDocs(cmd)
		}
	case sub == "GETKEYS" && n > 2:
		r.commandKeys(commands.find(args[2]), args[2:])
	default:
		r.unknownSubcommand(args)
	}
	return nil
}

// named returns the commands with these names, nil for unknown ones, or all commands if
// names is empty.
func (c *catalog) named(names [][]byte) []*command {
	if len(names) == 0 {
		return slices.Clone(c.list)
	}
	var found []*command
	for _, name := range names {
		found = append(found, c.find(name))
	}
	return found
}

// commandKeys answers COMMAND GETKEYS for the command in args.
func (r *reply) commandKeys(cmd *command, args [][]byte) {
	switch {
	case cmd == nil:
		r.fault("ERR", "Invalid command specified")
	case cmd.key == 0 || cmd.key >= len(args):
		r.fault("ERR", "The command has no key arguments")
	default:
		r.array(1)
		r.bulkBytes(args[cmd.key])
	}
}

// commandInfo appends the entry of COMMAND for one command.
//
// The name of a timeline is the key of TSIN, TS64IN and ORACLE. No other command has one. But some cluster clients, among them redis-py, choose a node and
// follow MOVED only for commands with a key, and fail for those without. So the counts of TS
// and SNOWFLAKE and the session of WORKER are presented as keys. Their slots do not matter where
// the leader has all of them; where it has not, MOVED names that slot (redirectSlot).
func (r *reply) commandInfo(cmd *command) {
	r.array(10)
	r.bulk(strings.ToLower(cmd.name))
	r.integer(int64(cmd.arity))
	r.set(len(cmd.flags))
	for _, flag := range cmd.flags {
		r.simple(flag)
	}
	r.integer(int64(cmd.key))         // the first key
	r.integer(int64(cmd.key))         // the last key
	r.integer(int64(min(cmd.key, 1))) // the step
	r.set(0)                          // categories
	r.array(0)                        // tips
	r.array(0)                        // where keys are
	r.array(0)                        // subcommands
}

// commandDocs appends the entry of COMMAND DOCS for one command; redis-cli shows it as help.
func (r *reply) commandDocs(cmd *command) {
	r.bulk(strings.ToLower(cmd.name))
	arguments := argumentsOf[cmd.name]
	r.dict(3 + min(len(arguments), 1))
	r.bulk("summary")
	r.bulk(cmd.summary)
	r.bulk("since")
	r.bulk(since)
	r.bulk("group")
	r.bulk(cmd.group)
	if len(arguments) > 0 {
		r.bulk("arguments")
		r.arguments(arguments)
	}
}

// argument is an argument of a command for COMMAND DOCS.
type argument struct {
	name, kind string
	token      string // before it, or in place of it
	optional   bool
	parts      []argument // of a block or a choice
}

// argumentsOf has the arguments of commands by name.
var argumentsOf = map[string][]argument{
	"TS": {
		{name: "request", kind: "block", optional: true, parts: []argument{
			{name: "count", kind: "integer"},
			{name: "mode", kind: "oneof", optional: true, parts: tokens("quorum", "lease")},
		}},
		{name: "floor", kind: "string", token: "FLOOR", optional: true},
		{name: "timeline", kind: "string", token: "TIMELINE", optional: true},
		{name: "traceparent", kind: "string", token: "TRACEPARENT", optional: true},
	},
	"TSIN": {
		{name: "timeline", kind: "key"},
		{name: "request", kind: "block", optional: true, parts: []argument{
			{name: "count", kind: "integer"},
			{name: "mode", kind: "oneof", optional: true, parts: tokens("quorum", "lease")},
		}},
		{name: "floor", kind: "string", token: "FLOOR", optional: true},
		{name: "traceparent", kind: "string", token: "TRACEPARENT", optional: true},
	},
	oracleCommand: {
		{name: "timeline", kind: "key"},
		{name: "operation", kind: "oneof", parts: append(tokens("write", "peek", "read"), argument{name: "ms", kind: "integer", token: "APPLY"})},
		{name: "mode", kind: "oneof", optional: true, parts: tokens("quorum", "lease")},
		{name: "traceparent", kind: "string", token: "TRACEPARENT", optional: true},
	},
	"INTERVAL": {
		{name: "request", kind: "oneof", optional: true, parts: []argument{
			{name: "nonce", kind: "integer"},
			{name: "stamp", kind: "block", parts: []argument{
				{name: "stamp", kind: "pure-token", token: "STAMP"},
				{name: "count", kind: "integer", optional: true},
			}},
			{name: "timestamp", kind: "string", token: "WAIT"},
		}},
	},
	"SNOWFLAKE": {
		{name: "count", kind: "integer", optional: true},
		{name: "form", kind: "oneof", token: "AS", optional: true, parts: tokens("string", "integer")},
		{name: "traceparent", kind: "string", token: "TRACEPARENT", optional: true},
	},
}

// tokens returns arguments that are words.
func tokens(names ...string) []argument {
	var list []argument
	for _, name := range names {
		list = append(list, argument{name: name, kind: "pure-token", token: strings.ToUpper(name)})
	}
	return list
}

// arguments appends a list of arguments.
func (r *reply) arguments(list []argument) {
	r.array(len(list))
	for _, a := range list {
		fields := 2
		for _, more := range []bool{a.token != "", a.optional, len(a.parts) > 0} {
			if more {
				fields++
			}
		}
		r.dict(fields)
		r.bulk("name")
		r.bulk(a.name)
		r.bulk("type")
		r.bulk(a.kind)
		if a.token != "" {
			r.bulk("token")
			r.bulk(a.token)
		}
		if a.optional {
			r.bulk("flags")
			r.array(1)
			r.simple("optional")
		}
		if len(a.parts) > 0 {
			r.bulk("arguments")
			r.arguments(a.parts)
		}
	}
}

// section is a part of INFO.
type section struct {
	name  string
	lines []string // without the ends of lines
}

// runInfo is INFO [section ...].
func (c *conn) runInfo(args [][]byte, r *reply) error {
	wanted := map[string]bool{}
	for _, arg := range args[1:] {
		wanted[strings.ToLower(string(arg))] = true
	}
	all := len(wanted) == 0 || wanted["all"] || wanted["default"] || wanted["everything"]
	var b strings.Builder
	for _, sec := range c.info(c.front.cfg.Backend.Status()) {
		if !all && !wanted[strings.ToLower(sec.name)] {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", sec.name)
		for _, line := range sec.lines {
			b.Write(appendLine(nil, line, len(line)))
			b.WriteString("\r\n")
		}
	}
	r.text(b.String())
	return nil
}

func (c *conn) info(status *front.Status) []section {
	role := "master"
	if c.front.roleOf(status) != role {
		role = "slave"
	}
	replication := []string{"role:" + role}
	primary, replicas, known := primaryOf(c.front.shards(status), status.NodeID)
	switch {
	case role == "master":
		replication = append(replication, fmt.Sprintf("connected_slaves:%d", replicas))
	case known:
		replication = append(replication, "master_host:"+primary.host,
			fmt.Sprintf("master_port:%d", primary.port), "master_link_status:up")
	default:
		replication = append(replication, "master_link_status:down")
	}
	cluster := []string{"cluster_enabled:1", clusterIDLine(status)}
	return []section{
		{"Server", []string{"redis_version:" + redisVersion, "redis_mode:cluster", "isotone_version:" + c.front.cfg.Version}},
		{"Clients", []string{fmt.Sprintf("connected_clients:%d", len(c.front.conns))}},
		{"Replication", replication},
		{"Cluster", cluster},
		{"Isotone", []string{
			fmt.Sprintf("node_id:%d", status.NodeID),
			"raft_role:" + status.Role,
			fmt.Sprintf("term:%d", status.Term),
			fmt.Sprintf("leader:%d", status.Leader),
			"leader_addr:" + status.LeaderAddr,
			fmt.Sprintf("members:%d", len(status.Members)),
			fmt.Sprintf("ceiling:%d", status.Ceiling),
			"not_ready:" + status.NotReady,
		}},
	}
}
