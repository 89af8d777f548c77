package resp

import "github.com/isotone/isotone/internal/auth/access"

// Right says what a command needs.
type Right struct {
	// Command is its name in capitals, with a subcommand if that needs something else.
	Command string
	// Needs are the roles; 0 with Any: any role, 0 without: nothing.
	Needs access.Roles
	Any   bool
	// Or is a role that does as well.
	Or access.Roles
	// Clock: it is about the cluster clock, and so not for users of some timelines only.
	Clock bool
}

// free are the commands of clients that have no role: to get one, or to leave.
var free = []string{"AUTH", "HELLO", "QUIT", "RESET"}

// Rights returns what each command needs, with those of REDIS_LOCKS.
func Rights() (list []Right) {
	for _, cmd := range newCatalog(true).list {
		list = append(list, Right{cmd.name, cmd.needs, cmd.needs == 0 && !isFree(cmd.name), cmd.or(), cmd.name == clockCommand})
		if cmd.name == workerCommand {
			for _, sub := range operatorsCommands {
				list = append(list, Right{Command: cmd.name + " " + sub, Needs: access.Admin})
			}
		}
		if cmd.name == lockCommand {
			list = append(list, Right{Command: cmd.name + " " + lockBreak, Needs: access.Admin})
		}
	}
	return list
}
