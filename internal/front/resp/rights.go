package resp

import "github.com/isotone/isotone/internal/auth/access"

// Right says what a command needs.
type Right struct {
	// Command is its name in capitals, with a subcommand if that needs something else.
	Command string
	// Needs are the roles; 0 with Any: any role, 0 without: nothing.
	Needs access.Roles
	// Or, if not 0, are roles that will do as well.
	Or  access.Roles
	Any bool
	// Clock: it is about the default order, and so not for users of some timelines only.
	Clock bool
}

// free are the commands of clients that have no role: to get one, or to leave.
var free = []string{"AUTH", "HELLO", "QUIT", "RESET"}

// Rights returns what each command needs.
func Rights() (list []Right) {
	for _, cmd := range newCatalog().list {
		needs, or := cmd.needs, access.Roles(0)
		if cmd.name == sessionCommand {
			needs, or = access.Locks, access.Frontier
		}
		list = append(list, Right{cmd.name, needs, or, needs == 0 && !isFree(cmd.name), isOfDefaultOrder(cmd.name)})
		if cmd.name == workerCommand {
			for _, sub := range operatorsCommands {
				list = append(list, Right{Command: cmd.name + " " + sub, Needs: access.Admin})
			}
		}
	}
	return list
}
