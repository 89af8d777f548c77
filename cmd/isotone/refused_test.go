package main

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
)

// TestRefused_WrongCredentialsAreNoOutage: each command says that they are wrong, and what to do.
func TestRefused_WrongCredentialsAreNoOutage(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {"app": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`)
	all := startProcessesWith(t, 1, func(s *config.Settings) { s.ACLFile = list.File })
	at := all[0].s.AdvertiseAddr
	wrong := []string{"--user", "app", "--password-file", rig.SecretFile(t, "not-the-secret-of-app-at-all-1234567890")}
	lacking := []string{"--user", "app", "--password-file", rig.SecretFile(t, rig.Secret)}
	for name, tt := range map[string]struct {
		flags       []string
		reason, say string
	}{
		"none":    {nil, "lack the role", "--user and --password-file"},
		"wrong":   {wrong, "the name or the secret is wrong", "--user and --password-file"},
		"no role": {lacking, "user app lacks the role", "name a user that has the role"},
	} {
		for _, args := range []string{"status", "doctor", "member list", "drain --yes"} {
			code, out, err := command(append(append(strings.Fields(args), "--endpoint", at), tt.flags...)...)
			text := out + err
			if code != 1 || !strings.Contains(text, tt.reason) || !strings.Contains(text, tt.say) {
				t.Errorf("%s, %s: exit code %d, %s", name, args, code, text)
			}
			for _, outage := range []string{"no leader", "No leader", "does not answer", "no node answers", "firewall"} {
				if strings.Contains(text, outage) {
					t.Errorf("%s, %s: %q in %s", name, args, outage, text)
				}
			}
		}
	}
	wantRun(t, 1, "", "refuses the credentials: unauthorized: the name or the secret is wrong", append([]string{"ready", "--endpoint", at}, wrong...)...)
}
