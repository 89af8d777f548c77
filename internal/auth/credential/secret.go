package credential

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// secretBytesMax bounds the file of a secret, one line with a name and a secret. It only keeps a
// wrong file from being read: whoever uses the secret knows the bound of one (access.SecretMax).
const secretBytesMax = 2 << 10

// ReadSecret returns the secret in a file of one line. It fails if the file is readable by others
// than its owner, except on Windows, or has anything else in it. The error begins with setting,
// and never has anything of the content in it.
func ReadSecret(setting, path string) (string, error) {
	text, err := readLine(path)
	if err == nil && text == "" {
		err = fmt.Errorf("%s is empty; want a line with the secret", path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	return text, nil
}

// ReadNamedSecret is [ReadSecret] for a line of the form NAME:SECRET. The first colon separates.
func ReadNamedSecret(setting, path string) (name, secret string, err error) {
	text, err := readLine(path)
	name, secret, found := strings.Cut(text, ":")
	if err == nil && (!found || name == "" || secret == "") {
		err = fmt.Errorf("%s: want a line of the form NAME:SECRET", path)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", setting, err)
	}
	return name, secret, nil
}

// readLine returns the only line of a file that only its owner can read. It may also be a pipe.
func readLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory", path)
	case runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s has the permissions %04o, so that others can read the secret in it: chmod 600 %s, and change the secret if they may have", path, info.Mode().Perm(), path)
	}
	b, err := io.ReadAll(io.LimitReader(f, secretBytesMax+1))
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case err != nil:
		return "", err
	case len(b) > secretBytesMax:
		return "", fmt.Errorf("%s has more than %d bytes; want one line", path, secretBytesMax)
	case strings.ContainsAny(text, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line", path)
	}
	return text, nil
}
