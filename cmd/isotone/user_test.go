package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/rig"
)

// hashWorks reports whether a list with the hash in it lets shop in with secret.
func hashWorks(t *testing.T, hash, secret string) bool {
	t.Helper()
	list := rig.SecretFile(t, fmt.Sprintf(`{"users": {"shop": {"roles": ["ids"], "secrets": [%q]}}}`, hash))
	users, err := access.Open(access.Config{File: list})
	if err != nil {
		t.Fatal(err)
	}
	s := users.Request(netip.MustParseAddr("127.0.0.1"), nil, false)
	return s.Prove(t.Context(), access.Credentials{Name: "shop", Secret: secret}) == nil && s.May(access.IDs)
}

func TestUserHash_MakesWhatAListAccepts(t *testing.T) {
	code, out, err := command("user", "hash", "--generate", "--json")
	var made madeHash
	if e := json.Unmarshal([]byte(out), &made); code != 0 || e != nil || len(made.Secret) != 32 || !hashWorks(t, made.Hash, made.Secret) {
		t.Errorf("exit code %d, %v, %s%s", code, e, out, err)
	}
	_, out, _ = command("user", "hash", "--generate")
	words := strings.Fields(out)
	if len(words) != 4 || words[0] != "secret" || words[1] == made.Secret || words[2] != "hash" || !hashWorks(t, words[3], words[1]) {
		t.Errorf("%q", out)
	}
	code, out, err = command("user", "hash", "--password-file", rig.SecretFile(t, rig.Secret))
	if code != 0 || strings.Contains(out+err, rig.Secret) || !hashWorks(t, strings.TrimSuffix(out, "\n"), rig.Secret) {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if hashWorks(t, strings.TrimSpace(out), "blab-blab") {
		t.Error("another secret is right as well")
	}
}

func TestUserHash_ReadsOneLineOfStandardInput(t *testing.T) {
	for _, tt := range []struct {
		input, want string // "": refused
	}{
		{"a b", "a b"}, {"a\n", "a"}, {"a\r\n", "a"}, {" a ", " a "}, {strings.Repeat("x", 256) + "\r\n", strings.Repeat("x", 256)},
		{"", ""}, {"\n", ""}, {"a\nb", ""}, {"a\n\n", ""}, {strings.Repeat("x", 257), ""}, {strings.Repeat("x", 256) + "\r\n\n", ""},
	} {
		got, err := secretLine(strings.NewReader(tt.input))
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && strings.Contains(err.Error(), "xx") {
			t.Errorf("%.20q: %.20q, %v", tt.input, got, err)
		}
	}
	cmd := reexec(t, nil, "user", "hash")
	cmd.Stdin = strings.NewReader(rig.Secret + "\n")
	out, err := cmd.Output()
	if err != nil || !hashWorks(t, strings.TrimSpace(string(out)), rig.Secret) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestUserHash_UsageErrorsSayWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{
		"--generate --password-file f":                                            "can't be used together",
		"--password-file " + rig.SecretFile(t, strings.Repeat("x", 257)):          "at most 256",
		"--password-file " + filepath.Join(t.TempDir(), "nothing"):                "--password-file",
		"--password " + rig.Secret:                                                "There is no --password",
		"--password-file " + rig.SecretFile(t, rig.Secret+"\n"+rig.Secret) + " -": "unexpected argument",
	} {
		code, out, err := command(append([]string{"user", "hash"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(err, want) || strings.Contains(out+err, rig.Secret) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, err)
		}
	}
}

func TestUserCheck_PrintsUsersWithoutSecrets(t *testing.T) {
	hash := access.HashSecret(rig.Secret)
	file := rig.SecretFile(t, fmt.Sprintf(`{"users": {
		"ops": {"roles": ["all"], "secrets": [%q, %q]}, "old": {"roles": ["none"], "timeline": "a/b", "timelines": ["c*", "d"]}, "shop": {"roles": ["ids"], "timelines": ["*"], "names": ["shop/", "x"], "limits": {"requests": 5, "workers": 2}}
	}, "addressLimits": {"streams": 3}}`, hash, hash))
	code, out, err := command("user", "check", file)
	table := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"ops timestamps,ids,workers,live,metrics,admin,floors,timelines,locks,frontier all all 2 none", "old none =a/b,c*,d all certificate only none", "shop ids * shop/,x certificate only requests 5/s, workers 2",
		"without credentials: streams 3", "SHA-256: ",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing in: %s", want, out)
		}
	}
	if code != 0 || strings.Contains(out, "argon2") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	_, out, _ = command("user", "check", "--json", file)
	var s access.Summary
	if e := json.Unmarshal([]byte(out), &s); e != nil || len(s.Users) != 3 || s.Users[1].Name != "ops" || s.Users[1].Secrets != 2 || s.Users[2].Limits.Workers != 2 || s.Users[0].Timeline != "a/b" || len(s.Users[0].Timelines) != 2 || s.Users[1].Timelines != nil || len(s.Users[2].Names) != 2 || s.Users[1].Names != nil ||
		s.AddressLimits.Streams != 3 || !strings.Contains(table, s.SHA256) || strings.Contains(out, "argon2") {
		t.Errorf("%v, %s", e, out)
	}
}

func TestUserCheck_SaysEveryFault(t *testing.T) {
	file := rig.SecretFile(t, `{"users": {"a b": {"roles": ["x"], "secrets": ["`+rig.Secret+`", "`+rig.Secret+`"]}, "c": {"roles": ["ids"], "limits": {"workers": -1}}}}`)
	code, out, err := command("user", "check", file)
	if code != exitFailure || out != "" || strings.Contains(err, rig.Secret) {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	for _, want := range []string{file, `"a b": want a name`, `"x" is no role`, "secret 1: want a hash", "secret 2: want a hash", `"c": a limit is not negative`} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is missing in: %s", want, err)
		}
	}
	if err := os.WriteFile(file, []byte(`{"users": {"a": {"roles": ["ids"], "password": "`+rig.Secret+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, err := command("user", "check", file); code != exitFailure || !strings.Contains(err, `unknown field "password"`) || strings.Contains(err, rig.Secret) {
		t.Errorf("exit code %d, %s", code, err)
	}
}

// TestUser_ASecretIsNoLongerThanClientsSend: nodes and clients accept no longer ones.
func TestUser_ASecretIsNoLongerThanClientsSend(t *testing.T) {
	secret := strings.Repeat("s", access.SecretMax)
	if code, _, err := command("user", "hash", "--password-file", rig.SecretFile(t, secret)); code != 0 {
		t.Error(err)
	}
	if code, _, err := command("user", "hash", "--password-file", rig.SecretFile(t, secret+"s")); code != exitUsage || !strings.Contains(err, "at most 256") {
		t.Errorf("%d: %s", code, err)
	}
}
