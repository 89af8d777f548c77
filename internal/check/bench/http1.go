package bench

import "crypto/tls"

// newHTTP1 returns HTTP/1.1, with TLS if tlsConfig is not nil, and with pipelined requests
// (RFC 9112 §9.3.2).
func newHTTP1(o *Options, tlsConfig *tls.Config) *pipelined {
	p := newPipelined(o, tlsConfig)
	if tlsConfig != nil {
		p.tls = tlsConfig.Clone()
		p.tls.NextProtos = []string{"http/1.1"}
	}
	path, fields := requestPath(o), ""
	p.parse = reading{count: o.Count, static: o.Static != ""}.parse
	if o.readings {
		path, p.parse = readingPath(), reading{clock: true, nonce: readingNonce}.parse
	}
	if header := p.auth.header(); header != "" {
		fields = "Authorization: " + header + "\r\n"
	}
	p.request = func(addr string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\n" + fields + "\r\n"
	}
	return p
}
