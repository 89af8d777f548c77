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
	case sub == "GETKEYS" && n > 3 && isTS(args[2]):
		r.array(1)
		r.bulkBytes(args[3])
	case sub == "GETKEYS" && n > 2:
		r.fault("ERR", "The command has no key arguments")
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

// commandInfo appends the entry of COMMAND for one command.
//
// No command has a key. But some cluster clients, among them redis-py, choose a node and
// follow MOVED only for commands with a key. So the count of TS is presented as a key. Its
// slot does not matter: the leader has all of them.
func (r *reply) commandInfo(cmd *command) {
	r.array(10)
	r.bulk(strings.ToLower(cmd.name))
	r.integer(int64(cmd.arity))
	r.set(len(cmd.flags))
	for _, flag := range cmd.flags {
		r.simple(flag)
	}
	var key int64
	if cmd.name == "TS" {
		key = 1
	}
	for range 3 { // first key, last key, step
		r.integer(key)
	}
	r.set(0)   // categories
	r.array(0) // tips
	r.array(0) // where keys are
	r.array(0) // subcommands
}

// commandDocs appends the entry of COMMAND DOCS for one command; redis-cli shows it as help.
func (r *reply) commandDocs(cmd *command) {
	r.bulk(strings.ToLower(cmd.name))
	fields := 3
	if cmd.name == "TS" {
		fields++
	}
	r.dict(fields)
	r.bulk("summary")
	r.bulk(cmd.summary)
	r.bulk("since")
	r.bulk(since)
	r.bulk("group")
	r.bulk(cmd.group)
	if cmd.name == "TS" {
		r.argumentsOfTS()
	}
}

// argumentsOfTS appends [count [QUORUM|LEASE]] [FLOOR timestamp].
func (r *reply) argumentsOfTS() {
	argument := func(name, kind string, more int) {
		r.dict(2 + more)
		r.bulk("name")
		r.bulk(name)
		r.bulk("type")
		r.bulk(kind)
	}
	optional := func() {
		r.bulk("flags")
		r.array(1)
		r.simple("optional")
	}
	r.bulk("arguments")
	r.array(2)
	argument("request", "block", 2)
	optional()
	r.bulk("arguments")
	r.array(2)
	argument("count", "integer", 0)
	argument("mode", "oneof", 2)
	optional()
	r.bulk("arguments")
	r.array(2)
	for _, mode := range []string{"quorum", "lease"} {
		argument(mode, "pure-token", 1)
		r.bulk("token")
		r.bulk(strings.ToUpper(mode))
	}
	argument("floor", "string", 2)
	r.bulk("token")
	r.bulk("FLOOR")
	optional()
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
	if roleOf(status) != role {
		role = "slave"
	}
	replication := []string{"role:" + role}
	shard := shardOf(status)
	switch {
	case role == "master":
		replication = append(replication, fmt.Sprintf("connected_slaves:%d", max(len(shard), 1)-1))
	case len(shard) > 0:
		replication = append(replication, "master_host:"+shard[0].host,
			fmt.Sprintf("master_port:%d", shard[0].port), "master_link_status:up")
	default:
		replication = append(replication, "master_link_status:down")
	}
	cluster := []string{"cluster_enabled:1"}
	if line := clusterIDLine(status); line != "" {
		cluster = append(cluster, line)
	}
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
