package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// measureLocal measures this machine, everything at once.
func measureLocal(ctx context.Context, client *http.Client, c *Local, l *doctor.Local) {
	var all sync.WaitGroup
	l.Names = names(&c.Settings)
	l.Listeners = make([]doctor.Listener, len(c.Listen))
	for i := range l.Names {
		all.Go(func() { resolve(ctx, &l.Names[i]) })
	}
	for i, listen := range c.Listen {
		l.Listeners[i] = doctor.Listener{Setting: listen.Setting, Network: listen.Network, Addr: listen.Addr, Optional: listen.Optional}
		all.Go(func() { tryListen(ctx, client, c.HTTP, &l.Listeners[i]) })
	}
	for id, addr := range c.Settings.Peers {
		if id != c.Settings.NodeID {
			l.Peers = append(l.Peers, doctor.Dial{NodeID: id, Addr: addr})
		}
	}
	slices.SortFunc(l.Peers, func(a, b doctor.Dial) int { return int(a.NodeID) - int(b.NodeID) })
	for i := range l.Peers {
		all.Go(func() { l.Peers[i] = *dial(ctx, l.Peers[i].NodeID, l.Peers[i].Addr) })
	}
	all.Go(func() { l.Disk = measureDisk(ctx, c.Settings.DataDir, c.DataFile) })
	l.Limits = limits()
	l.Clock = systemClock()
	host, _, _ := net.SplitHostPort(c.Settings.AdvertiseAddr)
	l.Files = readPair(doctor.Certificate{Set: c.CertSet, File: c.CertFile}, c.KeyFile, host)
	if c.CAFile != "" {
		l.ClientCA = readCA(c.CAFile)
	}
	all.Wait()
	for _, listener := range l.Listeners {
		if listener.Owner == c.Settings.NodeID {
			l.Advertised = dial(ctx, c.Settings.NodeID, c.Settings.AdvertiseAddr)
			break
		}
	}
}

// names returns the host names in the settings, each once.
func names(s *doctor.Settings) (list []doctor.Name) {
	add := func(setting, addr string) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil || host == "" || host == "localhost" || net.ParseIP(host) != nil ||
			slices.ContainsFunc(list, func(n doctor.Name) bool { return n.Host == host }) {
			return
		}
		list = append(list, doctor.Name{Setting: setting, Host: host})
	}
	add("ADVERTISE_ADDR", s.AdvertiseAddr)
	add("RAFT_ADDR", s.RaftAddr)
	for _, addr := range s.Peers {
		add("PEERS", addr)
	}
	for _, addr := range s.Join {
		add("JOIN", addr)
	}
	slices.SortStableFunc(list, func(a, b doctor.Name) int {
		if a.Setting != b.Setting {
			return 0
		}
		return strings.Compare(a.Host, b.Host)
	})
	return list
}

func resolve(ctx context.Context, n *doctor.Name) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, n.Host)
	if err != nil {
		n.Error = err.Error()
		return
	}
	n.Addrs = addrs
}

// tryListen finds out whether an address is free, and closes it again. The owner of the one for
// HTTP, at client, is asked who it is.
func tryListen(ctx context.Context, client *http.Client, httpAddr string, l *doctor.Listener) {
	var err error
	if l.Network == "udp" {
		var c net.PacketConn
		if c, err = net.ListenPacket(l.Network, l.Addr); err == nil {
			err = c.Close()
		}
	} else {
		var c net.Listener
		if c, err = new(net.ListenConfig).Listen(ctx, l.Network, l.Addr); err == nil {
			err = c.Close()
		}
	}
	switch {
	case err == nil:
		l.Free = true
		return
	case !errors.Is(err, syscall.EADDRINUSE):
		l.Error = err.Error()
		return
	}
	l.InUse = true
	if l.Setting != "HTTP_PORT" || l.Network == "udp" {
		return
	}
	status, _, body, err := get(ctx, client, "http://"+httpAddr+"/state")
	if err != nil {
		return
	}
	if s, err := survey.ReadState(strings.NewReader(string(body))); err == nil && status == http.StatusOK {
		l.Owner = s.Node.ID
	} else if status == http.StatusServiceUnavailable {
		l.Waiting = faultText(body)
	}
}

// readPair reads the certificate in c.File and its key, as a node does. host is the name that it
// is to have. Files that do not exist are an error only if they were named.
func readPair(c doctor.Certificate, keyFile, host string) doctor.Certificate {
	_, certErr := os.Stat(c.File)
	key, keyErr := os.Stat(keyFile)
	if !c.Set && errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		return c
	}
	c.Exists = true
	pair, err := tls.LoadX509KeyPair(c.File, keyFile)
	if err != nil {
		c.Error = fmt.Sprintf("%s and %s: %v", c.File, keyFile, err)
		return c
	}
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			c.Error = fmt.Sprintf("%s: %v", c.File, err)
			return c
		}
		chain = append(chain, cert)
	}
	describe(&c, chain, host)
	const others = 0o077
	c.KeyReadable = keyErr == nil && key.Mode().Perm()&others != 0
	return c
}

// describe fills in the dates of a chain, and whether its first certificate is for host.
func describe(c *doctor.Certificate, chain []*x509.Certificate, host string) {
	for i, cert := range chain {
		if i == 0 || cert.NotAfter.Before(c.NotAfter) {
			c.NotAfter = cert.NotAfter
		}
		if i == 0 || cert.NotBefore.After(c.NotBefore) {
			c.NotBefore = cert.NotBefore
		}
	}
	c.Host = host
	if host != "" {
		if err := chain[0].VerifyHostname(host); err != nil {
			c.HostError = err.Error()
		}
	}
}

// readCA reads certificates of authorities.
func readCA(file string) doctor.Certificate {
	c := doctor.Certificate{File: file, Set: true}
	text, err := os.ReadFile(file)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	c.Exists = true
	var list []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			c.Error = fmt.Sprintf("%s: %v", file, err)
			return c
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		c.Error = file + " has no certificate"
		return c
	}
	describe(&c, list, "")
	return c
}
