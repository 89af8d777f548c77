// Package httpapi is the HTTP spelling of the oracle: what a query asks, how
// timestamps are written, and how a failure looks, as pure functions.
//
// It owns that spelling, so that every HTTP front has the same. It knows no
// connection, no server and no net/http. internal/front/web and
// internal/front/http1 use it.
//
// Sources: RFC 9110 (semantics).
package httpapi
