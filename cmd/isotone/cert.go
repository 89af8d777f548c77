package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/auth/certname"
)

// certCmd makes certificates; see docs/security.md.
type certCmd struct {
	CA     certCACmd     `cmd:"" name:"ca" help:"Make an authority, which signs the certificates of nodes and clients."`
	Node   certNodeCmd   `cmd:"" help:"Make the certificate of a node for its peers."`
	Client certClientCmd `cmd:"" help:"Make the certificate of a client."`
	Revoke certRevokeCmd `cmd:"" help:"Put certificates on the revocation list."`
}

// certDaysMax: nobody plans for longer than a century.
const certDaysMax = 36500

// certFlags are those of every command about certificates.
type certFlags struct {
	Dir  string `name:"dir" default:"certs" placeholder:"DIR" complete:"dirs" help:"Directory with the authority, in which the files are made. Default: certs."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// certMakeFlags are those of commands that make a certificate.
type certMakeFlags struct {
	certFlags
	Overwrite bool `name:"overwrite" help:"Replace files that exist. Otherwise they are left alone, and the command fails."`
}

func (c *certFlags) print(con console, made authority.Made, next func(w io.Writer)) error {
	if c.JSON {
		return json.NewEncoder(con.out).Encode(made)
	}
	w := con.out
	fmt.Fprintln(w, made.Cert)
	if made.Key != "" {
		fmt.Fprintf(w, "%s (keep it secret)\n", made.Key)
	}
	if len(made.Names) > 0 {
		fmt.Fprintf(w, "  for %s\n", strings.Join(made.Names, ", "))
	}
	fmt.Fprintf(w, "  until %s\n\n", made.Until.UTC().Format(time.DateOnly))
	next(w)
	return nil
}

// existing adds what to do about a file that is in the way.
func existing(err error, instead string) error {
	if errors.As(err, new(*authority.ExistsError)) {
		return fmt.Errorf("%w: %s", err, instead)
	}
	return err
}

func certValidity(days int) (time.Duration, error) {
	if days < 1 || days > certDaysMax {
		return 0, usagef("--days %d: want 1 to %d", days, certDaysMax)
	}
	return time.Duration(days) * 24 * time.Hour, nil
}

type certCACmd struct {
	certMakeFlags
	Name   string `name:"name" default:"Isotone CA" help:"Common name of the authority; a number is added."`
	Days   int    `name:"days" default:"3650" help:"Validity in days."`
	Add    bool   `name:"add" xor:"how" help:"Add a new authority, which signs from now on, to the one in the directory, whose certificate stays in the bundle."`
	Retire bool   `name:"retire" xor:"how" help:"Make none, and leave only the newest authority in the bundle."`
}

// Run makes an authority.
func (c *certCACmd) Run(con console) error {
	validity, err := certValidity(c.Days)
	if err != nil {
		return err
	}
	d := authority.Dir{Path: c.Dir, Overwrite: c.Overwrite}
	if c.Retire {
		if c.Name != "Isotone CA" || c.Days != 3650 || c.Overwrite { // the defaults
			return usagef("--retire makes no authority: leave --name, --days and --overwrite away")
		}
		made, err := d.Retire()
		if err != nil {
			return err
		}
		return c.print(con, made, func(w io.Writer) {
			fmt.Fprintf(w, "Copy %s to the nodes: they refuse certificates of the older authorities then.\n", made.Cert)
		})
	}
	made, err := d.Authority(c.Name, validity, c.Add)
	if err != nil {
		return existing(err, "use --add for a new authority beside it, or --overwrite to lose it")
	}
	return c.print(con, made, func(w io.Writer) {
		if c.Add {
			fmt.Fprintf(w, "Copy %s to all nodes before you make certificates: isotone cert node 1 HOST --overwrite\n", made.Cert)
			return
		}
		fmt.Fprintf(w, "Next, for each node: isotone cert node ID HOST...\nThe key stays here; nodes need only %s.\n", made.Cert)
	})
}

type certNodeCmd struct {
	certMakeFlags
	ID          uint64   `arg:"" help:"ID of the node (NODE_ID)."`
	Hosts       []string `arg:"" optional:"" placeholder:"HOST" help:"DNS names and IP addresses of the node, which the certificate has, too."`
	TrustDomain string   `name:"trust-domain" default:"isotone" help:"Trust domain of the name spiffe://DOMAIN/isotone/node/ID, by which peers know the node."`
	Days        int      `name:"days" default:"365" help:"Validity in days; it ends with that of the authority at the latest."`
}

// Run makes the certificate of a node.
func (c *certNodeCmd) Run(con console) error {
	validity, err := certValidity(c.Days)
	if err != nil {
		return err
	}
	name := certname.Node(c.TrustDomain, c.ID).String()
	if id, ok := (certname.Rules{}).Node(name); !ok || id != c.ID {
		return usagef("%s cannot be the name of a node: want an ID from 1 to 2^48-1, and a trust domain of lower-case letters, digits, dots, dashes and underscores", name)
	}
	for _, host := range c.Hosts {
		if net.ParseIP(host) == nil && !certname.ValidHost(host) {
			return usagef("%q: want a DNS name or an IP address, without a port", host)
		}
	}
	d := authority.Dir{Path: c.Dir, Overwrite: c.Overwrite}
	made, err := d.Sign(authority.Node(c.TrustDomain, c.ID, c.Hosts), validity)
	if err != nil {
		return existing(err, "use --overwrite to replace it")
	}
	return c.print(con, made, func(w io.Writer) {
		fmt.Fprintf(w, "Set on node %d, with the paths there:\n  PEER_TLS_CERT=%s\n  PEER_TLS_KEY=%s\n  PEER_TLS_CA=%s\n", c.ID, made.Cert, made.Key, c.Dir+"/"+authority.BundleFile)
	})
}

type certClientCmd struct {
	certMakeFlags
	Name        string `arg:"" help:"Name of the client: 1 to 64 letters, digits, dots, dashes and underscores. It is the common name, and ends spiffe://DOMAIN/isotone/client/NAME."`
	TrustDomain string `name:"trust-domain" default:"isotone" help:"Trust domain of that name."`
	Days        int    `name:"days" default:"365" help:"Validity in days; it ends with that of the authority at the latest."`
}

// Run makes the certificate of a client.
func (c *certClientCmd) Run(con console) error {
	validity, err := certValidity(c.Days)
	if err != nil {
		return err
	}
	if !certname.ValidClient(c.Name) || strings.HasSuffix(c.Name, "-key") {
		return usagef("%q: want a name of 1 to 64 letters, digits, dots, dashes and underscores, which does not end in -key", c.Name)
	}
	if !certname.ValidTrustDomain(c.TrustDomain) {
		return usagef("--trust-domain %q: want lower-case letters, digits, dots, dashes and underscores", c.TrustDomain)
	}
	d := authority.Dir{Path: c.Dir, Overwrite: c.Overwrite}
	made, err := d.Sign(authority.Client(c.TrustDomain, c.Name), validity)
	if err != nil {
		return existing(err, "use --overwrite to replace it")
	}
	return c.print(con, made, func(w io.Writer) {
		fmt.Fprintf(w, "Nodes ask for such certificates with TLS_CLIENT_CA=%s\n", c.Dir+"/"+authority.BundleFile)
	})
}

type certRevokeCmd struct {
	certFlags
	Files []string `arg:"" name:"cert" complete:"files" help:"Certificates to revoke, as PEM files."`
}

// Run revokes certificates.
func (c *certRevokeCmd) Run(con console) error {
	d := authority.Dir{Path: c.Dir}
	made, err := d.Revoke(c.Files...)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(con.out).Encode(made)
	}
	fmt.Fprintf(con.out, "revoked: serial number %s\n\nCopy %s to the nodes, and set PEER_TLS_CRL to its path there, and with TLS_CLIENT_CA also TLS_CLIENT_CRL.\n", strings.Join(made.Names, ", "), made.Cert)
	return nil
}
