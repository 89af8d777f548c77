package demolive

import (
	"bytes"
	"crypto/tls"
	_ "embed"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// page is a server of the page that shows the votes. Its stream comes from the node.
type page struct {
	ln     net.Listener
	server *http.Server
	served chan struct{} // closed when serve's goroutine has ended; nil before it
}

// listenPage takes a port, before the node starts, which must know the origin.
func listenPage() (*page, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &page{ln: ln}, nil
}

func (p *page) origin() string { return "https://" + p.ln.Addr().String() }

// serve serves the page over HTTPS, with the stream of a node.
func (p *page) serve(pair tls.Certificate, node string) {
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, node); err != nil {
		panic("election: " + err.Error()) // the template takes any string
	}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "+node)
		_, _ = w.Write(body.Bytes())
	})
	p.server = &http.Server{
		Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // browsers that do not trust the certificate
	}
	p.served = make(chan struct{})
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(p.ln, "", "")
	}()
}

func (p *page) close() {
	_ = p.ln.Close()
	if p.server != nil {
		_ = p.server.Close()
		<-p.served
	}
}
