package credential_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/credential"
)

func TestReadSecret_OneLineThatOnlyTheOwnerCanRead(t *testing.T) {
	for _, tt := range []struct {
		content string
		mode    os.FileMode
		want    string // part of the error of both; "": none
		named   string // part of the error of ReadNamedSecret
	}{
		{"web:hu:sh", 0o600, "", ""},
		{"web:hush\n", 0o400, "", ""},
		{"web:hush\r\n", 0o600, "", ""},
		{"hush\n", 0o600, "", "NAME:SECRET"},
		{":hush", 0o600, "", "NAME:SECRET"},
		{"hush:", 0o600, "", "NAME:SECRET"},
		{"web:hush\n", 0o640, "chmod 600", ""},
		{"web:hush\n", 0o604, "others can read", ""},
		{"hush\nhush\n", 0o600, "more than one line", ""},
		{"hush\x00", 0o600, "more than one line", ""},
		{strings.Repeat("hush", 1000), 0o600, "more than 2048 bytes", ""},
	} {
		if runtime.GOOS == "windows" && tt.mode&0o077 != 0 {
			continue
		}
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(tt.content), tt.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		line := strings.TrimRight(tt.content, "\r\n")
		secret, err := credential.ReadSecret("--password-file", path)
		checkSecret(t, tt.want, "--password-file", err)
		if err == nil && secret != line {
			t.Errorf("%q: %q", tt.content, secret)
		}
		name, secret, err := credential.ReadNamedSecret("FILE_SETTING", path)
		checkSecret(t, tt.want+tt.named, "FILE_SETTING", err)
		if err == nil && (name != "web" || "web:"+secret != line) {
			t.Errorf("%q: %q, %q", tt.content, name, secret)
		}
	}
	_, err := credential.ReadSecret("--password-file", filepath.Join(t.TempDir(), "none"))
	checkSecret(t, "no such file", "--password-file", err)
	_, err = credential.ReadSecret("--password-file", t.TempDir())
	checkSecret(t, "is a directory", "--password-file", err)
}

func checkSecret(t *testing.T, want, setting string, err error) {
	t.Helper()
	switch {
	case want == "" && err == nil:
	case want == "" || err == nil:
		t.Errorf("%v; want %q", err, want)
	case !strings.HasPrefix(err.Error(), setting+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush"):
		t.Errorf("%v; want %q", err, want)
	}
}
