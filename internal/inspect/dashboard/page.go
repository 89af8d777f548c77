package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed page
var pageFiles embed.FS

// document is the page: one file with inline style and script. It loads in one request, so
// it never mixes files of two versions during a rolling upgrade.
type document struct {
	plain, zipped       []byte
	tagPlain, tagZipped string
	policy              string
}

// pageScripts are the parts of the script, in order. They share one scope.
var pageScripts = []string{"format.js", "link.js", "judge.js", "series.js", "chart.js", "timeline.js", "tables.js", "owners.js", "locks.js", "main.js"}

// assemble puts the page together, once.
var assemble = sync.OnceValue(func() *document {
	var script strings.Builder
	for _, name := range pageScripts {
		script.WriteString(pageFile(name))
	}
	style := pageFile("style.css")
	text := strings.NewReplacer("{{style}}", style, "{{script}}", script.String()).Replace(pageFile("page.html"))
	d := &document{plain: []byte(text)}
	var zipped bytes.Buffer
	z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // a valid level
	_, _ = z.Write(d.plain)                                    // a Buffer never fails
	_ = z.Close()
	d.zipped = zipped.Bytes()
	sum := sha256.Sum256(d.plain)
	tag := hex.EncodeToString(sum[:12])
	d.tagPlain, d.tagZipped = `"`+tag+`"`, `"`+tag+`-gzip"`
	// The script may connect anywhere, because it reads the documents of all members, and
	// the members change. It sends no data.
	d.policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; connect-src 'self' http: https:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		hash(script.String()), hash(style))
	return d
})

func pageFile(name string) string {
	text, err := pageFiles.ReadFile(path.Join("page", name))
	if err != nil {
		panic(err) // embedded
	}
	return string(text)
}

// hash returns the hash source of an element's content for a Content-Security-Policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// serve answers with the page, or 304.
func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	body, tag := d.plain, d.tagPlain
	header := w.Header()
	if accepts(r.Header.Values("Accept-Encoding"), "gzip") {
		body, tag = d.zipped, d.tagZipped
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Cache-Control", "no-cache") // revalidate each time
	header.Set("ETag", tag)
	header.Set("Content-Security-Policy", d.policy)
	header.Set("Referrer-Policy", "no-referrer")
	if matches(r.Header.Values("If-None-Match"), tag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// matches reports whether If-None-Match contains tag (RFC 9110 §13.1.2).
func matches(values []string, tag string) bool {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			part = strings.TrimSpace(part)
			if part == "*" || strings.TrimPrefix(part, "W/") == tag {
				return true
			}
		}
	}
	return false
}
