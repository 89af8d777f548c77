package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

// command is one entry of the catalog.
type command struct {
	name string
	// arity is the number of arguments with the name; if negative, at least so many.
	arity   int
	key     int // the argument that is presented as a key, see commandInfo; 0: none
	flags   []string
	group   string
	summary string
	needs   access.Roles // 0: any role
	// run appends the answer. An error ends the connection after it.
	run func(c *conn, args [][]byte, r *reply) error
}

// catalog has all commands.
type catalog struct {
	list   []*command
	byName map[string]*command // in capitals
}

// newCatalog returns the catalog. A package variable would be an initialization cycle: the
// command COMMAND refers to the catalog.
func newCatalog(redisLocks bool) *catalog {
	fast, slow := []string{"loading", "stale", "fast"}, []string{"loading", "stale"}
	c := &catalog{byName: map[string]*command{}, list: []*command{
		{"TS", -1, 1, []string{"fast"}, "generic", "The first of count consecutive timestamps, 16 bytes.", access.Timestamps, (*conn).runTS},
		{"TS64", -1, 1, []string{"fast"}, "generic", "The first of count consecutive timestamps of 64 bits, in decimal.", access.Timestamps, (*conn).runTS},
		{"TSIN", -2, 1, []string{"fast"}, "generic", "The first of count consecutive timestamps of a timeline, 16 bytes.", access.Timestamps, (*conn).runTS},
		{"TS64IN", -2, 1, []string{"fast"}, "generic", "The first of count consecutive timestamps of a timeline, of 64 bits, in decimal.", access.Timestamps, (*conn).runTS},
		{oracleCommand, -3, 1, []string{"fast"}, "generic", "The time of a write, of reads, or of the latest write of a timeline, in unix milliseconds; or makes a write visible to reads.", access.Timestamps, (*conn).runTS},
		{"SNOWFLAKE", -1, 1, []string{"fast"}, "generic", "A unique 63-bit id, or an array of count of them, as integers or strings.", access.IDs, (*conn).runSnowflake},
		{clockCommand, -1, 1, []string{"fast"}, "generic", "A reading of the cluster clock, 48 bytes; the first of count timestamps made of it; or waits until a timestamp is past.", access.Timestamps, (*conn).runInterval},
		{workerCommand, -2, 2, []string{"fast"}, "generic", "Leases a worker id for ids made by the client, or gives it back. For operators: lists or revokes leases.", access.Workers, (*conn).runWorker},
		{sessionCommand, -2, 2, []string{"fast"}, "generic", "Binds a session to the connection, keeps it alive, or ends it.", access.Locks, (*conn).runSession},
		{lockCommand, -2, 2, []string{"fast"}, "generic", "Acquires or releases a lock of the session, or tells who holds one.", access.Locks, (*conn).runLock},
		{frontierCommand, -3, 2, []string{"fast"}, "generic", "Takes stamps of a group of writers, says which are decided, or tells up to which all are.", access.Frontier, (*conn).runFrontier},
		{"PING", -1, 0, fast, "connection", "Answers PONG, or the message.", 0, (*conn).runPing},
		{"ECHO", 2, 0, fast, "connection", "Answers the message.", 0, (*conn).runEcho},
		{"HELLO", -1, 0, fast, "connection", "Chooses RESP2 or RESP3.", 0, (*conn).runHello},
		{"AUTH", -2, 0, fast, "connection", "Authenticates this connection.", 0, (*conn).runAuth},
		{"SELECT", 2, 0, fast, "connection", "Accepts database 0.", 0, (*conn).runSelect},
		{"CLIENT", -2, 0, slow, "connection", "Names and describes this connection.", 0, (*conn).runClient},
		{"READONLY", 1, 0, fast, "cluster", "Accepted without effect.", 0, (*conn).runOK},
		{"READWRITE", 1, 0, fast, "cluster", "Accepted without effect.", 0, (*conn).runOK},
		{"ASKING", 1, 0, fast, "cluster", "Accepted without effect: an owner of timelines serves them whoever has their slot.", 0, (*conn).runOK},
		{"QUIT", -1, 0, fast, "connection", "Closes the connection.", 0, (*conn).runQuit},
		{"RESET", 1, 0, fast, "connection", "Returns the connection to its first state.", 0, (*conn).runReset},
		{"MULTI", 1, 0, fast, "transactions", "Queues the commands that follow.", 0, (*conn).runMulti},
		{"EXEC", 1, 0, slow, "transactions", "Runs the queued commands, and answers with an array.", 0, (*conn).runExec},
		{"DISCARD", 1, 0, fast, "transactions", "Forgets the queued commands.", 0, (*conn).runDiscard},
		{"WATCH", -2, 0, fast, "transactions", "Accepted without effect: there are no keys.", 0, (*conn).runWatch},
		{"UNWATCH", 1, 0, fast, "transactions", "Accepted without effect.", 0, (*conn).runOK},
		{"COMMAND", -1, 0, slow, "server", "Describes the commands.", 0, (*conn).runCommand},
		{"CONFIG", -2, 0, slow, "server", "Tells what little there is to be told of parameters.", 0, (*conn).runConfig},
		{"INFO", -1, 0, slow, "server", "Describes this node.", 0, (*conn).runInfo},
		{"CLUSTER", -2, 0, slow, "cluster", "Describes the cluster: who has which slots.", 0, (*conn).runCluster},
	}}
	if redisLocks {
		c.list = append(c.list, redisCommands()...)
	}
	for _, cmd := range c.list {
		c.byName[cmd.name] = cmd
	}
	return c
}

// clockCommand is about the cluster clock, and so not for users of some timelines only.
const clockCommand = "INTERVAL"

// nameMax is longer than the name of any command.
const nameMax = 16

// find returns the command of that name, in any case, or nil.
func (c *catalog) find(name []byte) *command {
	var upper [nameMax]byte
	if len(name) > nameMax {
		return nil
	}
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper[i] = b
	}
	return c.byName[string(upper[:len(name)])]
}

// takes reports whether the command may have n arguments, with its name.
func (cmd *command) takes(n int) bool { return n == cmd.arity || cmd.arity < 0 && n >= -cmd.arity }

// run answers the command in args.
func (c *conn) run(args [][]byte, r *reply) error {
	cmd := c.front.commands.find(args[0])
	switch {
	case cmd == nil:
		r.unknown(args)
		return nil
	case !cmd.takes(len(args)):
		r.wrongArity(strings.ToLower(cmd.name))
		return nil
	}
	if err := c.require(cmd, args); err != nil {
		r.b = appendFault(r.b, faultOf(err))
		return nil
	}
	c.slot = c.front.redirectSlot(cmd, args)
	return cmd.run(c, args, r)
}

// require returns why the client may not run the command, or nil. Without any rights it may
// only ask for some, or leave.
func (c *conn) require(cmd *command, args [][]byte) error {
	switch {
	case cmd.name == workerCommand && isOperators(args), cmd.name == lockCommand && subcommand(args) == lockBreak:
		return c.session.Require(access.Admin)
	case cmd.needs != 0:
		if !c.session.May(cmd.or()) || cmd.or() == 0 {
			if err := c.session.Require(cmd.needs); err != nil {
				return err
			}
		}
		switch {
		case cmd.name == clockCommand:
			return c.session.RequireClock()
		case cmd.isOfSessions():
			return c.session.RequireDefault("sessions, locks and frontiers, which belong")
		}
		return nil
	case isFree(cmd.name):
		return nil
	}
	return c.session.RequireAny()
}

// or returns a role that does as well as those that a command needs; 0: none does.
func (cmd *command) or() access.Roles {
	if cmd.name == sessionCommand {
		return access.Frontier
	}
	return 0
}

// isOfSessions reports whether a command is about sessions, locks or frontiers.
func (cmd *command) isOfSessions() bool {
	return cmd.needs&(access.Locks|access.Frontier) != 0
}

func isFree(name string) bool { return slices.Contains(free, name) }

// unknown answers an unknown command as Redis does.
func (r *reply) unknown(args [][]byte) {
	const shown = 40 // bytes of each argument
	text := append([]byte("unknown command '"), args[0][:min(len(args[0]), 2*shown)]...)
	text = append(text, "', with args beginning with: "...)
	for _, arg := range args[1:min(len(args), 4)] {
		text = append(text, '\'')
		text = append(text, arg[:min(len(arg), shown)]...)
		text = append(text, "' "...)
	}
	r.fault("ERR", string(text))
}

func (r *reply) wrongArity(name string) {
	r.fault("ERR", "wrong number of arguments for '"+name+"' command")
}

// subcommand returns the second argument in capitals; "" if it is too long to be any.
func subcommand(args [][]byte) string {
	if len(args[1]) > 2*nameMax {
		return ""
	}
	return strings.ToUpper(string(args[1]))
}

func (r *reply) unknownSubcommand(args [][]byte) {
	r.fault("ERR", fmt.Sprintf("unknown subcommand or wrong number of arguments for '%.40s'", args[1]))
}

var errRightsChanged = isotone.Errorf(isotone.CodeOverloaded, "the list of users has just changed; try again")

// runTS answers a command for timestamps that is invalid, or whose timeline the client may not use; carryOut submits the others.
func (c *conn) runTS(args [][]byte, r *reply) error {
	_, o, err := parseAsk(args)
	if err == nil {
		_, err = c.session.RequireTimeline(o.timeline)
	}
	if err == nil {
		err = errRightsChanged
	}
	e := faultOf(err)
	r.b = appendFault(r.b, e)
	c.front.observe(string(e.Code), 1, 0)
	return nil
}

func (c *conn) runPing(args [][]byte, r *reply) error {
	switch len(args) {
	case 1:
		r.simple("PONG")
	case 2:
		r.bulkBytes(args[1])
	default:
		r.wrongArity("ping")
	}
	return nil
}

func (c *conn) runEcho(args [][]byte, r *reply) error {
	r.bulkBytes(args[1])
	return nil
}

func (c *conn) runOK(_ [][]byte, r *reply) error {
	r.ok()
	return nil
}

func (c *conn) runQuit(_ [][]byte, r *reply) error {
	r.ok()
	return errQuit
}

func (c *conn) runReset(_ [][]byte, r *reply) error {
	c.resp3, c.local, c.database, c.name, c.transaction = false, false, 0, "", nil
	c.endSession()
	c.session.Reset()
	r.simple("RESET")
	return nil
}

func (c *conn) runSelect(args [][]byte, r *reply) error {
	n, err := strconv.Atoi(string(args[1]))
	most := 0
	if c.front.hasRedisLocks() {
		most = databasesMax - 1
	}
	switch {
	case err != nil:
		r.fault("ERR", "value is not an integer or out of range")
	case n < 0 || n > most:
		r.fault("ERR", [2]string{"DB index is out of range: there is only 0", fmt.Sprintf("DB index is out of range: there are 0 to %d", most)}[bit(most > 0)])
	default:
		c.database = uint8(n)
		r.ok()
	}
	return nil
}

// parameters has the names and values for CONFIG GET. redis-benchmark asks for these, and
// warns if they are missing.
var parameters = [][2]string{{"save", ""}, {"appendonly", "no"}}

// runConfig answers CONFIG GET like a server without persistence. Patterns are not
// supported.
func (c *conn) runConfig(args [][]byte, r *reply) error {
	if subcommand(args) != "GET" || len(args) < 3 {
		r.unknownSubcommand(args)
		return nil
	}
	var known [][2]string
	for _, p := range parameters {
		if slices.ContainsFunc(args[2:], func(name []byte) bool { return strings.EqualFold(string(name), p[0]) }) {
			known = append(known, p)
		}
	}
	r.dict(len(known))
	for _, p := range known {
		r.bulk(p[0])
		r.bulk(p[1])
	}
	return nil
}
