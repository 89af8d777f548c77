// Package proxy is a reverse proxy for HTTP backends, see [Server], and a proxy for TCP connections of
// any protocol, see [TCPServer]. (A proxy in front of an
// Isotone cluster is internal/proxy/forward's.)
//
// It owns reading and rewriting messages, connections to backends, health checks, retries, and
// the limits on all of it. internal/proxy/balance chooses backends, internal/front/requestid names
// requests. internal/server, cmd/isotone and internal/check/demoscale are the only callers.
//
// # Two paths
//
// The fast path (fast_path.go, client_conn.go, backend_conn.go) serves what makes up the load:
// HTTP/1.1 requests without a body or with a short one. It runs in one event loop together with
// the connections to the backends, so a request costs two reads and two writes and no switch
// between threads. Everything else (long or chunked bodies, HTTP/1.0, HTTP/2, TLS) takes the
// standard path: the connection, with the bytes that were read, goes to net/http and a handler
// (handler.go).
//
// # TCP
//
// A TCPServer (tcp_server.go) has the same balancer and health checks, and a relay (tcp_relay.go) for
// each connection: two goroutines, which let the kernel move bytes that come without a pause.
//
// # Strictness
//
// Request smuggling exploits two parsers that read the same bytes in two ways. Therefore
// parseRequest (request.go) reads every HTTP/1 request first, on either path, and refuses with
// 400 what can be read in two ways: both Content-Length and Transfer-Encoding, either of them
// twice, any transfer coding but chunked, folded lines, a bare CR or LF, white space before a
// colon, a second Host. On the way to net/http, validatingConn applies it to every request of
// the connection, and equally strict checks to the chunks of bodies. HTTP/2 has unambiguous
// framing; its methods and targets are held to the same rules. What is forwarded is written
// anew. The fast path reads the answers of backends equally strictly; an invalid one becomes a 502.
// The standard path reads them as net/http does, which is more lenient, and frames them anew.
//
// Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
package proxy
