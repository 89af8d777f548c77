package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/operator"
)

// accessFlags are the flags of all commands that talk to nodes: how a command recognises nodes,
// and how it proves to them who it is. See docs/security.md.
//
// There is no flag for a secret itself: everybody on the machine can read the command lines of
// its processes, and shells keep them in files.
type accessFlags struct {
	CA           string `name:"ca" placeholder:"FILE" complete:"files" help:"PEM file with the CA certificates that sign those of the nodes; implies https. Default: those of the system."`
	Cert         string `name:"cert" placeholder:"FILE" complete:"files" help:"PEM file with the client certificate to present to nodes, then its chain; implies https."`
	Key          string `name:"key" placeholder:"FILE" complete:"files" help:"PEM file with the private key of --cert."`
	ServerName   string `name:"server-name" placeholder:"NAME" help:"The name that the certificates of all nodes are for; implies https. Default: the host in the address of each."`
	Insecure     bool   `name:"insecure" short:"k" help:"Accept any certificate, such as the self-signed ones that nodes create. Not with --user."`
	User         string `name:"user" env:"ISOTONE_USER" placeholder:"NAME" help:"The name to authenticate with. Its secret comes from --password-file or the variable ISOTONE_PASSWORD."`
	PasswordFile string `name:"password-file" env:"ISOTONE_PASSWORD_FILE" placeholder:"FILE" complete:"files" help:"File with the secret of --user, in one line; only its owner may have the right to read it."`
}

// passwordVariable is the environment variable with the secret, if no file has it.
const passwordVariable = "ISOTONE_PASSWORD"

// noPasswordFlag answers those who look for --password.
const noPasswordFlag = "There is no --password: everybody on this machine can read command lines. Put the secret into a file (--password-file), or into the variable " + passwordVariable + "."

// open checks the flags and reads their files. The error names all that is wrong.
func (f *accessFlags) open() (*operator.Access, error) {
	a := &operator.Access{Secure: f.CA != "" || f.Cert != "" || f.ServerName != ""}
	var found flagErrors
	roots, err := credential.ReadCA("--ca", f.CA)
	if err != nil {
		found.add(err)
	}
	a.TLS = &tls.Config{RootCAs: roots, InsecureSkipVerify: f.Insecure, ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		found.add(errors.New("--cert and --key go together"))
	case f.Cert != "":
		pair, err := f.pair()
		if err != nil {
			found.add(err)
		}
		a.TLS.Certificates = []tls.Certificate{pair}
	}
	f.authenticate(a, &found)
	if err := errors.Join(found...); err != nil {
		return nil, usageError(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return a, nil
}

// renewing returns what reads the client certificate for each connection, or nil if there is none.
func (f *accessFlags) renewing() func() (tls.Certificate, error) {
	if f.Cert == "" {
		return nil
	}
	return f.pair
}

func (f *accessFlags) pair() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return pair, fmt.Errorf("--cert, --key: %w", err)
	}
	return pair, nil
}

// authenticate sets the credentials.
func (f *accessFlags) authenticate(a *operator.Access, found *flagErrors) {
	secret, inVariable := os.LookupEnv(passwordVariable)
	inVariable = inVariable && secret != ""
	switch {
	case f.User == "" && f.PasswordFile == "" && !inVariable:
		return
	case f.User == "":
		found.add(errors.New("there is a secret but no name: want --user NAME, or the variable ISOTONE_USER"))
		return
	case f.PasswordFile == "" && !inVariable:
		found.add(fmt.Errorf("--user %.80q: want its secret in a file (--password-file), or in the variable %s", f.User, passwordVariable))
		return
	case f.Insecure:
		found.add(errors.New("--insecure sends nobody's secret: any server could be the one that asks for it; name the CA or the self-signed certificate of the nodes with --ca FILE"))
		return
	}
	a.Credentials = func() (c client.Credentials, err error) {
		c = client.Credentials{Name: f.User, Secret: secret}
		if f.PasswordFile != "" {
			if c.Secret, err = credential.ReadSecret("--password-file", f.PasswordFile); err != nil {
				return client.Credentials{}, err
			}
		}
		return c, c.Validate()
	}
	if _, err := a.Credentials(); err != nil {
		found.add(err)
	}
}

// endpointList is a flag with addresses, separated by commas or given several times. An empty address is
// an error: most likely it comes from a variable that is not set.
type endpointList []string

// Decode is called by the parser for each flag.
func (l *endpointList) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("address", &text); err != nil {
		return err
	}
	for _, addr := range strings.Split(text, ",") {
		if addr == "" {
			return errors.New("an address is empty")
		}
		*l = append(*l, addr)
	}
	return nil
}

// atMostOne refuses a list where one node is meant. which says what that node is.
func (l endpointList) atMostOne(which string) error {
	if len(l) > 1 {
		return usagef("--endpoint %s: want one address, that of %s", strings.Join(l, ","), which)
	}
	return nil
}
