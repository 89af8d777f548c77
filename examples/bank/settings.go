package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

const (
	// accountsMax is bounded by the keys that one transaction may write: one opens all accounts.
	accountsMax = 1000
	workersMax  = 1000
)

// settings is the command line.
type settings struct {
	memory          bool
	redis, postgres string
	isotone         string
	binary          string
	accounts        int
	workers         int
	duration        time.Duration
	kill            bool
}

func parseSettings(args []string, usage io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bank", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.BoolVar(&s.memory, "memory", false, "keep all accounts in this process, instead of --redis and --postgres")
	flags.StringVar(&s.redis, "redis", "", "Redis: host:port, or a URL (redis://…)")
	flags.StringVar(&s.postgres, "postgres", "", "Postgres: a URL (postgres://…), or a connection string")
	flags.StringVar(&s.isotone, "isotone", "", "nodes of an Isotone cluster: host:port,…; without it, three are started")
	flags.StringVar(&s.binary, "binary", "", "the isotone program for nodes that are started; without it, it is built")
	flags.IntVar(&s.accounts, "accounts", 100, fmt.Sprintf("number of accounts, 2 to %d", accountsMax))
	flags.IntVar(&s.workers, "workers", 8, fmt.Sprintf("number of clients that transfer money, 1 to %d", workersMax))
	flags.DurationVar(&s.duration, "duration", 30*time.Second, "how long to transfer, 1s to 24h")
	flags.BoolVar(&s.kill, "kill", false, "kill clients in the middle of commits, and leaders of nodes that were started here")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	return s, s.validate(flags.Args())
}

// validate returns all faults.
func (s *settings) validate(rest []string) error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(len(rest) == 0, "unexpected arguments: %q", rest)
	both, none := s.redis != "" && s.postgres != "", s.redis == "" && s.postgres == ""
	check(s.memory && none || !s.memory && both, "want either --memory, or --redis and --postgres")
	check(s.isotone == "" || s.binary == "", "--binary is for nodes that are started, without --isotone")
	check(s.accounts >= 2 && s.accounts <= accountsMax, "--accounts = %d: want 2 to %d", s.accounts, accountsMax)
	check(s.workers >= 1 && s.workers <= workersMax, "--workers = %d: want 1 to %d", s.workers, workersMax)
	check(s.duration >= time.Second && s.duration <= 24*time.Hour, "--duration = %v: want 1s to 24h", s.duration)
	return errors.Join(faults...)
}
