// Package httpapi defines how the oracle is used over HTTP: queries, the encodings of
// timestamps and ids, and errors, as pure functions.
//
// It owns these formats, so that every HTTP front has the same. It knows no
// connection, no server and no net/http. internal/front/web and
// internal/front/http1 use it.
//
// Sources: RFC 9110 (semantics).
package httpapi
