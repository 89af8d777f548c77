package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// System is one kind of system that numbers come from. [Serve] makes it a driver. Its errors are an [Error] each, or
// mean that the system is unavailable.
type System interface {
	// Hello describes the system and the driver. Options may matter for the version.
	Hello(options map[string]string) (Hello, error)
	// Plan says how nodes are started. It may make directories in where.Dir.
	Plan(where PlanRequest, options map[string]string) (Plan, error)
	// Connect is told once where the nodes are, before Ready and Ask. It does not wait for them.
	Connect(addresses []string, options map[string]string) error
	// Ready asks whether a node is up, and can be asked for numbers as far as it ever can.
	Ready(node int, deadline time.Time) error
	// Ask asks a node for count consecutive numbers, and returns the first. Goroutines call it side by side.
	Ask(node int, count uint64, deadline time.Time) (first isotone.Timestamp, err error)
	// Close drops connections once no call is under way.
	Close()
}

// IntervalSystem is a System that may promise [Intervals]. It is asked for them in place of numbers then.
type IntervalSystem interface {
	System
	// AskInterval asks a node for an interval. Goroutines call it side by side.
	AskInterval(node int, deadline time.Time) (earliest, latest isotone.Timestamp, err error)
}

// MemberSystem is a System whose members can be changed while it runs, if its Hello says so.
type MemberSystem interface {
	System
	// Remove has the other nodes no longer count one as a member, which runs. Repeated, it does nothing.
	Remove(node int, start Command, deadline time.Time) error
	// Add makes a node that was removed, and does not run, a member without data, and returns how it is started from now on. It is repeated if it
	// fails.
	Add(node int, start Command, deadline time.Time) (Command, error)
}

// systems are those that are part of this program.
var systems = map[string]func() System{
	"http":     func() System { return &webSystem{} },
	"isotone":  func() System { return &isotoneSystem{} },
	"postgres": func() System { return &postgresSystem{} },
	"redis":    func() System { return &redisSystem{} },
}

// Systems returns the names of all systems that are part of this program.
func Systems() []string { return slices.Sorted(maps.Keys(systems)) }

// New returns a system by its name.
func New(name string) (System, error) {
	system, ok := systems[name]
	if !ok {
		return nil, fmt.Errorf("there is no system %q: want %s, or exec and the command of a driver", name, strings.Join(Systems(), ", "))
	}
	return system(), nil
}

// checkOptions refuses options that the driver does not have.
func checkOptions(options, known map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if _, ok := known[name]; !ok {
			has := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			return Errorf(Invalid, "there is no option %q: the driver has %s", name, has)
		}
	}
	return nil
}

// choice returns the value of an option, which is one of a few; the first is the default.
func choice(options map[string]string, name string, values ...string) (string, error) {
	value, ok := options[name]
	if !ok {
		return values[0], nil
	}
	if !slices.Contains(values, value) {
		return "", Errorf(Invalid, "option %s = %q: want %s", name, value, strings.Join(values, ", "))
	}
	return value, nil
}
