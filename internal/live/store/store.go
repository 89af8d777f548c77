// Package store is what a node and the program isotone-live have in common: the URL of a live
// document in a database, and the pipe over which the node has the program load it. The drivers of
// databases are in the program, a Go module of its own, so that they are no part of the node
// (docs/decisions/0031-databases-in-a-process-of-their-own.md).
//
// Sources: RFC 3986 (URLs), MongoDB's specifications "Connection String" and "Initial DNS Seedlist
// Discovery", and libpq's documentation of connection URIs.
package store

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Program is the name of the program that loads documents from databases.
const Program = "isotone-live"

// URL says where a document is. [Parse] makes it.
type URL struct {
	// Scheme is mongodb, mongodb+srv or postgres.
	Scheme string
	// Driver is the URL for the driver: that of LIVE without "#" and what follows, and with commas
	// between hosts.
	Driver string
	// Hosts are the names and addresses of the hosts, without ports and brackets. With mongodb+srv
	// the one name is that of SRV records. Empty: Driver names a socket of this machine.
	Hosts []string
	// Database and Collection say where a document of MongoDB is, and ID is its _id as text.
	Database, Collection, ID string
	// Query is the query that returns a document of Postgres.
	Query string
	// Shown is the URL for people: without user, password, options and query.
	Shown string

	secrets []string
}

// Schemes are the schemes of databases.
var Schemes = []string{"mongodb", "mongodb+srv", "postgres", "postgresql"}

// Parse reads the URL of a document:
//
//	mongodb://[user:password@]host[:port][,host…]/database[?options]#collection/ID
//	mongodb+srv://[user:password@]name/database[?options]#collection/ID
//	postgres://[user[:password]@]host[:port][,host…]/database[?options]#query
//
// Escapes of the form %2C are allowed everywhere. The error does not repeat the text, which may have
// a password. Options are left to the driver.
func Parse(text string) (*URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if !ok || !slices.Contains(Schemes, scheme) {
		return nil, errors.New("want a URL of mongodb, mongodb+srv or postgres, with // after the scheme")
	}
	if scheme == "postgresql" {
		scheme = "postgres"
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, options, asked := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	u := &URL{Scheme: scheme}
	userinfo, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		userinfo, hosts = authority[:i+1], authority[i+1:]
	}
	hosts = strings.ReplaceAll(strings.ReplaceAll(hosts, "%2C", ","), "%2c", ",")
	query, err := url.ParseQuery(options)
	if err != nil {
		return nil, errors.New(`want options of the form name=value with "&" between them`)
	}
	if err := u.readUser(userinfo, query); err != nil {
		return nil, err
	}
	socket := scheme == "postgres" && hosts == "" && strings.HasPrefix(query.Get("host"), "/")
	if !socket {
		if u.Hosts, err = readHosts(scheme, hosts); err != nil {
			return nil, err
		}
	}
	u.Driver = scheme + "://" + userinfo + hosts + "/" + path
	if asked {
		u.Driver += "?" + options
	}
	u.Shown = scheme + "://" + hosts + "/" + path
	return u, u.readPlace(path, fragment)
}

// readUser keeps what must not be shown. Text is empty or ends with "@".
func (u *URL) readUser(text string, options url.Values) error {
	text = strings.TrimSuffix(text, "@")
	name, password, _ := strings.Cut(text, ":")
	for _, secret := range []string{password, name} {
		plain, err := url.PathUnescape(secret)
		if err != nil || strings.ContainsAny(secret, "/?#[]@") {
			return errors.New("want user and password escaped, as in p%40ss")
		}
		u.secrets = append(u.secrets, secret, plain)
	}
	for option, values := range options {
		if option = strings.ToLower(option); strings.Contains(option, "password") || option == "user" || option == "authmechanismproperties" {
			u.secrets = append(u.secrets, values...)
		}
	}
	return nil
}

// Redact returns text without users and passwords of the URL, which drivers and servers may repeat.
func (u *URL) Redact(text string) string {
	for _, secret := range u.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// readHosts returns the hosts of a list of host:port.
func readHosts(scheme, text string) (hosts []string, err error) {
	wrong := errors.New("want a host, a port from 1 to 65535 if any, and %2C between several")
	for _, one := range strings.Split(text, ",") {
		u, err := url.Parse("//" + one)
		if err != nil || u.Hostname() == "" || u.Host != one {
			return nil, wrong
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if strings.HasSuffix(one, ":") || u.Port() != "" && (err != nil || port == 0) {
			return nil, wrong
		}
		if scheme == "mongodb+srv" && (u.Port() != "" || strings.ContainsAny(one, "[]") || text != one) {
			return nil, errors.New("want one name of SRV records after mongodb+srv://, without a port")
		}
		hosts = append(hosts, u.Hostname())
	}
	return hosts, nil
}

// readPlace reads the database, and what follows "#".
func (u *URL) readPlace(path, fragment string) (err error) {
	u.Database, err = url.PathUnescape(path)
	if err != nil || u.Database == "" || strings.Contains(u.Database, "/") {
		return errors.New("want the name of a database after the host")
	}
	if u.Scheme == "postgres" {
		u.Query, err = url.PathUnescape(fragment)
		u.Query = strings.TrimRight(u.Query, "; \t\r\n")
		if err != nil || strings.TrimSpace(u.Query) == "" || strings.ContainsRune(u.Query, 0) {
			return errors.New(`want a query after "#", as in #SELECT doc FROM live; write %25 for "%"`)
		}
		return nil
	}
	collection, id, _ := strings.Cut(fragment, "/")
	var errID error
	u.Collection, err = url.PathUnescape(collection)
	u.ID, errID = url.PathUnescape(id)
	if err != nil || errID != nil || u.Collection == "" || u.ID == "" {
		return errors.New(`want a collection and an _id after "#", as in #live/votes`)
	}
	u.Shown += "#" + fragment
	return nil
}
