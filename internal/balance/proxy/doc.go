// Package proxy is a reverse proxy for HTTP backends; see [Server]. (A proxy in front of an
// Isotone cluster is internal/forward's.)
//
// It owns how a message is read and rewritten on its way, connections to backends, health
// checks, retries, and the limits on all of it. Which backend a request goes to is
// internal/balance's; what a request is called, internal/front/transaction's. cmd/isotone is
// the only caller.
//
// # Two paths
//
// The lane (lane.go, client.go, link.go) is for what makes up the load: HTTP/1.1 requests
// without a body or with a short one. It runs in one event loop, with the connections to
// the backends in the same loop, so a request costs two reads and two writes and no
// hand-over between threads. Everything else (long or chunked bodies, HTTP/1.0, HTTP/2,
// TLS) goes, with the connection and the bytes that were read, to net/http and a handler
// (handler.go).
//
// # Strictness
//
// Two parsers that read the same bytes in two ways are what request smuggling lives from.
// Every HTTP/1 request, on either path, is read by parseRequest (request.go) first, which
// refuses with 400 whatever could be read in two ways: both Content-Length and
// Transfer-Encoding, either of them twice, any other transfer coding than chunked, folded
// lines, a bare CR or LF, white space before a colon, a second Host. On the way to
// net/http a filter ([screen]) applies it to every request of the connection, and the
// same to the chunks of bodies. Of HTTP/2, whose framing has nothing to argue about, method
// and target are held to the same. What is forwarded is written anew. In the lane the
// answers of backends are read as strictly; one that fails is a 502. The general path reads
// them as net/http does, which is more lenient, and frames them anew as well.
//
// Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
package proxy
