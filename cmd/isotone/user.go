package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/auth/credential"
)

// userCmd helps to write the list of users; see docs/security.md.
type userCmd struct {
	Hash  userHashCmd  `cmd:"" help:"Print the hash of a secret, for a user in ACL_FILE."`
	Check userCheckCmd `cmd:"" help:"Check a list of users, and print it without secrets."`
}

type userHashCmd struct {
	Generate     bool   `name:"generate" xor:"source" help:"Make a secret of 192 random bits, and print it before its hash. It is not printed again."`
	PasswordFile string `name:"password-file" xor:"source" placeholder:"FILE" complete:"files" help:"File with the secret, in one line; only its owner may have the right to read it. Default: the line on standard input."`
	JSON         bool   `name:"json" help:"Print JSON: hash, and secret with --generate."`
}

// Help shows how the hash gets into a list.
func (userHashCmd) Help() string {
	return "A new user:\n\n" +
		"  $ isotone user hash --generate\n" +
		"  secret  5Vb0...\n" +
		"  hash    $argon2id$v=19$m=19456,t=2,p=1$...\n\n" +
		"The hash goes into the list, the file of ACL_FILE; the secret goes to the client:\n\n" +
		"  {\"users\": {\"shop\": {\"roles\": [\"timestamps\", \"ids\"], \"secrets\": [\"$argon2id$...\"]}}}\n\n" +
		"One that gets a timeline in place of the default order, and may name others:\n\n" +
		"  \"app-7\": {\"roles\": [\"timestamps\"], \"timeline\": \"tenant-7/main\", \"timelines\": [\"tenant-7/*\"], \"secrets\": [...]}\n\n" +
		"A secret that exists:\n\n" +
		"  isotone user hash < secret.txt"
}

// madeHash is what isotone user hash prints.
type madeHash struct {
	Secret string `json:"secret,omitempty"` // only if it was made
	Hash   string `json:"hash"`
}

// Run prints a hash.
func (c *userHashCmd) Run(con console) error {
	var made madeHash
	secret, err := c.secret()
	if err != nil {
		return err
	}
	if c.Generate {
		made.Secret = secret
	}
	made.Hash = access.HashSecret(secret)
	switch {
	case c.JSON:
		return json.NewEncoder(con.out).Encode(made)
	case c.Generate:
		_, err = fmt.Fprintf(con.out, "secret  %s\nhash    %s\n", made.Secret, made.Hash)
	default:
		_, err = fmt.Fprintln(con.out, made.Hash)
	}
	return err
}

// secret returns the one to hash.
func (c *userHashCmd) secret() (secret string, err error) {
	switch {
	case c.Generate:
		return access.NewSecret(), nil
	case c.PasswordFile != "":
		secret, err = credential.ReadSecret("--password-file", c.PasswordFile)
	default:
		if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return "", usagef("standard input is a terminal, which would show the secret: want --generate, --password-file FILE, or a pipe")
		}
		secret, err = secretLine(os.Stdin)
	}
	if err == nil && len(secret) > access.SecretMax {
		err = usagef("the secret has %d bytes, want at most %d", len(secret), access.SecretMax)
	}
	return secret, err
}

// secretLine reads a secret, which is all there is but for the end of its line.
func secretLine(r io.Reader) (string, error) {
	b := bufio.NewReader(io.LimitReader(r, access.SecretMax+3)) // a secret that is too long, and "\r\n"
	line, err := b.ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if _, err := b.ReadByte(); err == nil || line == "" || len(line) > access.SecretMax {
		return "", usagef("standard input: want one line, which is the secret, of at most %d bytes", access.SecretMax)
	}
	return line, nil
}

type userCheckCmd struct {
	File string `arg:"" complete:"files" help:"The list, as in ACL_FILE."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help says when to use it.
func (userCheckCmd) Help() string {
	return "Before a list is copied to the nodes:\n\n" +
		"  isotone user check users.json\n\n" +
		"It prints the users, and fails with everything that is wrong. Two nodes have the same list if it prints the same SHA-256 on both.\n\n" +
		"TIMELINES says which timelines a user may use: all, with the default order, or those of its keys \"timeline\" and \"timelines\", " +
		"such as =tenant-7/main,tenant-7/*. The one with the = is what the user gets in place of the default order."
}

// Run checks a list.
func (c *userCheckCmd) Run(con console) error {
	s, err := access.Summarize(c.File)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if c.JSON {
		return json.NewEncoder(con.out).Encode(s)
	}
	t := tabwriter.NewWriter(con.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "USER\tROLES\tTIMELINES\tNAMES\tSECRETS\tLIMITS")
	for _, u := range s.Users {
		secrets := fmt.Sprint(u.Secrets)
		if u.Secrets == 0 {
			secrets = "certificate only"
		}
		locks := "all"
		if u.Names != nil {
			locks = strings.Join(u.Names, ",")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", u.Name, u.Roles, u.Orders, locks, secrets, u.Limits)
	}
	_ = t.Flush()
	_, err = fmt.Fprintf(con.out, "limits of each address without credentials: %s\nSHA-256: %s\n", s.AddressLimits, s.SHA256)
	return err
}
