package config

import "regexp"

var (
	// userInfo is what stands between a scheme and the last @ of a word: passwords may have any
	// character, although they should be escaped.
	userInfo = regexp.MustCompile(`://[^\s"]*@`)
	// query is what follows the "?" of a URL.
	query = regexp.MustCompile(`(://[^\s"?]*\?)[^\s",]*`)
)

// Redact returns text for people: without the users, passwords and queries of the URLs in it, which
// may have a token. It is for messages that repeat what somebody has typed.
func Redact(text string) string {
	return query.ReplaceAllString(userInfo.ReplaceAllString(text, "://***@"), "$1***")
}
