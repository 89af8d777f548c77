package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/auth/certname"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/operator"
)

// describeSecurity returns what a node tells operators about who may reach it.
func describeSecurity(s *config.Settings, f memberFiles) front.Security {
	d := front.Security{NodeID: s.NodeID, ClientCA: s.TLSClientCA != "", PeersInClear: s.PeerInsecure, MovedTime: f.users.MovedTime(), RefusedHere: f.users.RefusedHere()}
	if sum, users, refused := f.users.InForce(); sum != "" {
		d.Users = &front.UserList{SHA256: sum, Users: users, Refused: refused}
	}
	if f.peers != nil {
		d.Peers = describePeerCertificates(f.peers.Files.State(), f.peers.Names)
	}
	return d
}

func describePeerCertificates(p credential.PeerState, rules certname.Rules) *front.PeerCertificates {
	d := &front.PeerCertificates{
		Names: certname.Names(p.Certificate), AllowedNames: rules.Text(), NotBefore: p.NotBefore, NotAfter: p.NotAfter, Revoked: p.Revoked,
		Authorities: []front.Authority{}, Lists: []front.RevocationList{},
	}
	if p.SignedBy != nil {
		d.SignedBy = fingerprint(p.SignedBy.Raw)
	}
	for _, a := range p.Authorities {
		d.Authorities = append(d.Authorities, front.Authority{SHA256: fingerprint(a.Raw), Subject: a.Subject.String(), NotAfter: a.NotAfter})
	}
	for _, l := range p.Lists {
		d.Lists = append(d.Lists, front.RevocationList{
			Issuer: l.Issuer.String(), SHA256: fingerprint(l.Raw), Revoked: len(l.RevokedCertificateEntries), ThisUpdate: l.ThisUpdate, NextUpdate: l.NextUpdate,
		})
	}
	return d
}

func fingerprint(der []byte) string { return fmt.Sprintf("%x", sha256.Sum256(der)) }

// DescribeTrust reads the files about users and peers as a node with these settings would.
func DescribeTrust(s *config.Settings) *doctor.Trust {
	t := &doctor.Trust{Security: front.Security{NodeID: s.NodeID, ClientCA: s.TLSClientCA != "", PeersInClear: s.PeerInsecure}, ACLFile: s.ACLFile, PeerCert: s.PeerTLSCert}
	if s.ACLFile != "" {
		list, err := access.Summarize(s.ACLFile)
		if err != nil {
			t.UsersError = oneLine(err)
		} else {
			t.Security.Users = &front.UserList{SHA256: list.SHA256, Users: len(list.Users)}
		}
	}
	if s.PeerTLSCert != "" {
		files, err := credential.OpenPeers(peerConfig(s))
		if err != nil {
			t.PeersError = oneLine(err)
		} else {
			t.Security.Peers = describePeerCertificates(files.State(), s.PeerAllowedNames)
		}
	} else if err := s.PeersInClear(); err != nil {
		t.PeersError = oneLine(err)
	}
	return t
}

// tellOperator returns all that a node tells operators about its users and peers.
func tellOperator(s *config.Settings, f memberFiles) any {
	return struct {
		front.Security
		survey.Activity
	}{describeSecurity(s, f), describeActivity(f.users)}
}

// describeActivity returns what a node tells operators about what its users do.
func describeActivity(users *access.Control) (a survey.Activity) {
	a.LastMove = describeMove(users)
	for _, u := range users.Uses() {
		a.Uses = append(a.Uses, survey.Use(u))
	}
	return a
}

// describeMove returns the latest move of time far ahead of the clock, or nil.
func describeMove(users *access.Control) *survey.Move {
	m := users.LastMove()
	if m == nil {
		return nil
	}
	return &survey.Move{At: m.At, Operator: m.Operator, User: m.User, Client: m.Client, To: m.To, AheadSeconds: m.Ahead.Seconds()}
}

// watchUsers adds what users have used to the metrics.
func watchUsers(r *telemetry.Registry, users *access.Control) {
	telemetry.WatchUsers(r, func() (uses []telemetry.Use) {
		for _, u := range users.Uses() {
			uses = append(uses, telemetry.Use(u))
		}
		return uses
	})
}

// tellUse returns a function that tells the other members what users have used of their limits.
func tellUse(users *access.Control, n *node.Node) func(context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(access.ReportEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if report := users.Report(); report != nil {
					n.Tell(report)
				}
			}
		}
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// tellOperators says how operators of this machine are known, where it is not as it was before operator.sock existed: then
// whoever connected from a loopback address was one.
func tellOperators(s *config.Settings, alone bool, log *slog.Logger) {
	if s.ACLFile == "" && s.Anonymous == nil && !alone {
		log.Info("operators of this machine are known by the Unix socket, not by a loopback address; others need credentials: set ACL_FILE",
			"socket", filepath.Join(s.DataDir, operator.SocketName))
	}
}

// warnAllRoles points out that certificates of clients give all roles.
func warnAllRoles(s *config.Settings, log *slog.Logger) {
	if s.TLSClientCA != "" && s.ACLFile == "" {
		log.Warn("each client with a certificate of an authority in TLS_CLIENT_CA has all roles, also admin; set ACL_FILE to say who may do what", "TLS_CLIENT_CA", s.TLSClientCA)
	}
}
