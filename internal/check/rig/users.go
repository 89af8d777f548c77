package rig

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
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

// Hash is the hash of Secret. It is made once, since hashing is slow.
var Hash = sync.OnceValue(func() string { return access.HashSecret(Secret) })

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
	if err := os.WriteFile(draft, []byte(strings.ReplaceAll(text, "HASH", Hash())), 0o600); err != nil {
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
