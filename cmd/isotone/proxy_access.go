package main

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/isotone/isotone/internal/auth/access"
)

// proxyAccess are the flags about who may use a proxy in front of a cluster. They mean what the
// settings of a node with the same names do.
type proxyAccess struct {
	ACLFile    string `name:"acl-file" placeholder:"FILE" complete:"files" help:"List of the users that the proxy serves, as ACL_FILE of a node; read again when it changes. Their secrets are checked here, and are not passed on."`
	Anonymous  string `name:"anonymous" placeholder:"ROLE,..." help:"Roles of clients without credentials, from any address: timestamps, ids; or all, or none. Needed with --cert or --user unless there is --acl-file: the proxy uses the cluster with its own rights. Default: all; with --acl-file, none."`
	RequireTLS bool   `name:"require-tls" help:"Refuse clients without TLS. Needs --tls-cert."`
}

// errWhoMayUse refuses to lend the rights of the proxy to whoever reaches it.
var errWhoMayUse = errors.New("--cert, --user: the proxy would use the cluster with its own credentials for everybody who reaches it; " +
	"say who may: --acl-file FILE has users with secrets, --anonymous timestamps,ids is everybody")

// config returns how clients are told apart. owns: the proxy has credentials of its own.
func (f *proxyAccess) config(owns bool, log *slog.Logger) (access.Config, error) {
	cfg := access.Config{File: f.ACLFile, Setting: "--acl-file", Log: log}
	if f.Anonymous != "" {
		roles, err := access.ParseRoles(strings.Split(f.Anonymous, ","))
		if err != nil {
			return cfg, usagef("--anonymous %.80q: %v", f.Anonymous, err)
		}
		cfg.Anonymous = &roles
	}
	if owns && cfg.File == "" && cfg.Anonymous == nil {
		return cfg, usageError(errWhoMayUse.Error())
	}
	return cfg, nil
}

// openUsers reads the list of users.
func (f *proxyAccess) openUsers(owns bool, log *slog.Logger) (*access.Control, error) {
	cfg, err := f.config(owns, log)
	if err != nil {
		return nil, err
	}
	users, err := access.Open(cfg)
	if err != nil {
		return nil, usageError(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return users, nil
}
