package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Secret is that of all users of tests.
const Secret = "hush-hush"

// SecretFile writes the file of --password-file, or of FORWARD_CREDENTIAL_FILE.
func SecretFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// secretHash is a hash of Secret at the lowest cost that a list accepts. The usual cost keeps a busy machine with the race detector occupied
// for seconds, which is longer than nodes wait for requests.
const secretHash = "$argon2id$v=19$m=8,t=1,p=1$c2FsdC1mb3ItdGVzdHMtLQ$9V/lJw5vHHnw7XzzxXDPSg"

// UserList is a list of users in a file. HASH stands for the hash of Secret.
type UserList struct {
	t    *testing.T
	File string
}

// NewUserList writes a list.
func NewUserList(t *testing.T, text string) *UserList {
	t.Helper()
	l := &UserList{t: t, File: filepath.Join(t.TempDir(), "users.json")}
	l.Write(text)
	return l
}

// Write replaces the list.
func (l *UserList) Write(text string) {
	l.t.Helper()
	draft := l.File + ".new"
	if err := os.WriteFile(draft, []byte(strings.ReplaceAll(text, "HASH", secretHash)), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(draft, l.File); err != nil {
		l.t.Fatal(err)
	}
}

// Users has a user for each of the things that a client may want.
const Users = `{"users": {
	"web": {"roles": ["timestamps", "live"], "secrets": ["HASH"]},
	"ids": {"roles": ["ids", "workers"], "secrets": ["HASH"]},
	"ops": {"roles": ["all"], "secrets": ["HASH"]},
	"default": {"roles": ["timestamps"], "secrets": ["HASH"]}
}}`
